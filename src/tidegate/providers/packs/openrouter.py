"""OpenRouter. `error.code` is the real status, even in responses with status 200.

One 402 resolves by itself: the budget for calls in flight. 403 with `reasons` or `flagged_input`: moderation.

Sources: openrouter.ai "Errors and debugging", "Limits"; dirge-code/dirge#719.
"""

from __future__ import annotations

from tidegate.providers._bodies import error_part, members
from tidegate.providers.evidence import Evidence
from tidegate.providers.meaning import CONTENT_POLICY, NO_MONEY, RATE_LIMIT, USED_UP, Finding
from tidegate.providers.pack import Pack

_BY_LIMIT = {
    "openrouter_in_flight_budget": RATE_LIMIT,
    "openrouter_credits": NO_MONEY,
    "openrouter_key_limit": NO_MONEY,
}


def _judge(evidence: Evidence) -> Finding | None:
    for metadata in members(error_part(evidence.document or {}), "metadata"):
        source = str(metadata.get("limit_source"))
        if meaning := _BY_LIMIT.get(source):
            return Finding(meaning, f"limit_source {source}", source, decisive=True)
        if metadata.get("reasons") or metadata.get("flagged_input"):
            return Finding(CONTENT_POLICY, "flagged by moderation", decisive=True)
    if evidence.status == 429 and "per-day" in evidence.text:
        return Finding(USED_UP, "a limit for the day", decisive=True)
    return None


OPENROUTER = Pack(name="openrouter", hosts=("openrouter.ai",), judge=_judge)
