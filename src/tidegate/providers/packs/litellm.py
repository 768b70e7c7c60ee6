"""LiteLLM, a client of many providers.

LiteLLM overwrites code and type: those of the provider are in the text only.

Source: litellm 1.110.2 `exceptions.py`.
"""

from __future__ import annotations

import re

from tidegate.providers.evidence import Evidence, peek
from tidegate.providers.meaning import NO_MONEY, Finding
from tidegate.providers.pack import Pack

_MONEY = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance|spend_limit", re.IGNORECASE
)


def _judge(evidence: Evidence) -> Finding | None:
    if peek(evidence.source, "rate_limit_type") == "budget":
        return Finding(NO_MONEY, "rate_limit_type budget", "budget", decisive=True)
    if evidence.status in (400, 402, 429) and _MONEY.search(evidence.text):
        return Finding(NO_MONEY, "money, by the text of the provider")
    return None


LITELLM = Pack(name="litellm", modules=("litellm",), judge=_judge)
