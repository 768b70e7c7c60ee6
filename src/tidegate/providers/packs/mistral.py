"""Mistral. A model that is short of capacity answers 429 with the type `invalid_request_error`.

Sources: mistralai/platform-docs-public `error-glossary.md`; cline/cline#9085, continuedev/continue#6185;
mistralai 3.7.0.
"""

from __future__ import annotations

from tidegate.providers.evidence import Evidence
from tidegate.providers.meaning import OVERLOADED, RATE_LIMIT, Finding, codes
from tidegate.providers.pack import Pack


def _judge(evidence: Evidence) -> Finding | None:
    if evidence.status == 429 and "capacity exceeded" in evidence.text.lower():
        return Finding(OVERLOADED, "status 429 for want of capacity")
    return None


MISTRAL = Pack(
    name="mistral",
    aliases=("mistralai",),
    hosts=("api.mistral.ai", "codestral.mistral.ai"),
    modules=("mistralai",),
    codes=codes((RATE_LIMIT, "1300 rate_limited")),
    judge=_judge,
)
