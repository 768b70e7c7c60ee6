"""Zhipu (Z.ai). The codes are numbers of Zhipu's own, most of them with HTTP 429.

Only the text names the reset of a quota, as a date without a zone. The time is read as a time in China.

Sources: docs.bigmodel.cn "API codes", "Rate limit".
"""

from __future__ import annotations

import re

from tidegate.providers._moments import read_moment
from tidegate.providers.evidence import Evidence
from tidegate.providers.meaning import (
    AUTH,
    CONTENT_POLICY,
    CONTEXT_LENGTH,
    NO_MONEY,
    OVERLOADED,
    RATE_LIMIT,
    USED_UP,
    codes,
)
from tidegate.providers.pack import Pack

_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
_WITH_A_RESET = frozenset({"1308", "1310"})


def _read_wait(evidence: Evidence, now: float, wait: float | None) -> float | None:
    if wait is not None or _WITH_A_RESET.isdisjoint(evidence.codes):
        return wait
    found = _DATE.search(evidence.text)
    moment = None if found is None else read_moment(f"{found.group()}+08:00", now=now)
    return None if moment is None else max(0.0, moment - now)


ZHIPU = Pack(
    name="zhipu",
    aliases=("zhipuai", "bigmodel", "zai", "z.ai", "glm"),
    hosts=("open.bigmodel.cn", "api.z.ai"),
    modules=("zhipuai", "zai"),
    codes=codes(
        (NO_MONEY, "1113"),
        (AUTH, "1000 1001 1002 1003 1004 1112"),
        (RATE_LIMIT, "1302 1303"),
        (OVERLOADED, "1305 1312"),
        (USED_UP, "1304 1308 1310"),
        (CONTEXT_LENGTH, "1261"),
        (CONTENT_POLICY, "1301"),
    ),
    read_wait=_read_wait,
)
