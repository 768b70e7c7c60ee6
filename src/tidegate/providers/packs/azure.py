"""Azure OpenAI, and API Management in front of it.

Sources: learn.microsoft.com dev-proxy "azure-openai-429-token-rate-limit"; azure-core 1.41; the policies
`rate-limit` and `quota` of API Management, which answer `{"statusCode", "message"}` and name the time until
a quota is replenished as `[d.]hh:mm:ss`.
"""

from __future__ import annotations

import re

from tidegate.providers.counting import Counting
from tidegate.providers.evidence import Evidence
from tidegate.providers.meaning import OVERLOADED, USED_UP, Finding, codes
from tidegate.providers.pack import Pack

_REPLENISHED = re.compile(r"replenished in (?:(\d{1,3})\.)?(\d\d):(\d\d):(\d\d)", re.ASCII)


def _judge(evidence: Evidence) -> Finding | None:
    gateway = evidence.document is not None and "statusCode" in evidence.document
    if evidence.status == 403 and gateway and "quota" in evidence.text.lower():
        return Finding(USED_UP, "status 403 of a quota of API Management", decisive=True)
    return None


def _read_wait(evidence: Evidence, _: float, wait: float | None) -> float | None:
    found = _REPLENISHED.search(evidence.text) if wait is None else None
    if found is None:
        return wait
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


AZURE = Pack(
    name="azure",
    counting=Counting(reserves_max_tokens=True, returns_unused=False),
    aliases=("azure-openai", "azure_openai", "azureopenai"),
    hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com", "azure-api.net"),
    modules=("azure",),
    # The second is the cap on tokens enqueued in batches: it is free again when other batches have ended.
    codes=codes((OVERLOADED, "NoCapacity"), (USED_UP, "token_limit_exceeded")),
    judge=_judge,
    read_wait=_read_wait,
)
