"""Gemini and Vertex AI, with errors in the form of `google.rpc.Status`.

A daily quota comes with a `retryDelay` of a few seconds, which is wrong. A delay of ten minutes or more is
used; otherwise the wait is until midnight in California, when daily quotas reset. A limit of 0 means that the
tier has no quota for the model at all.

Sources: ai.google.dev "Troubleshooting" and "Rate limits"; google-gemini/gemini-cli
`googleQuotaErrors.ts`; docs.cloud.google.com "API errors"; google-genai 3.6.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from tidegate.providers._bodies import Document, error_part, members
from tidegate.providers.evidence import Evidence
from tidegate.providers.meaning import AUTH, NO_MONEY, OVERLOADED, USED_UP, Finding, codes
from tidegate.providers.pack import Pack

_NO_QUOTA_AT_ALL = re.compile(r"\blimit: 0\b(?!\.\d)", re.ASCII)
_LEAST_BELIEVED_SECONDS = 600.0


def _judge(evidence: Evidence) -> Finding | None:
    if evidence.status != 429 and "RESOURCE_EXHAUSTED" not in evidence.codes:
        return None
    if _NO_QUOTA_AT_ALL.search(evidence.text) or any(
        str(violation.get("quotaValue")) == "0" for violation in _violations(evidence)
    ):
        return Finding(NO_MONEY, "a quota of 0: none on this tier", decisive=True)
    if evidence.status == 429 and _is_daily(evidence):
        return Finding(USED_UP, "a quota for the day", decisive=True)
    return None


def _read_wait(evidence: Evidence, now: float, wait: float | None) -> float | None:
    if not _is_daily(evidence) or (wait is not None and wait >= _LEAST_BELIEVED_SECONDS):
        return wait
    return until_midnight_in_california(now)


def _is_daily(evidence: Evidence) -> bool:
    if "quota_exceeded" in evidence.codes:
        return True
    return any("PerDay" in str(violation.get("quotaId")) for violation in _violations(evidence))


def _violations(evidence: Evidence) -> Iterator[Document]:
    for detail in members(error_part(evidence.document or {}), "details"):
        yield from members(detail, "violations")


def until_midnight_in_california(now: float) -> float:
    """Return the seconds from `now` to the next midnight by Pacific time.

    Computed by the rule in force since 2007 (daylight saving time from the second Sunday of March to the
    first of November, at 2 in the morning), so that no time zone database is needed.
    """
    moment = datetime.fromtimestamp(now, UTC)
    local = moment + _offset(moment)
    midnight = datetime(local.year, local.month, local.day, tzinfo=UTC) + timedelta(days=1)
    # The clock does not change between midnight and the time for which the offset is computed.
    return (midnight - _offset(midnight + timedelta(hours=8)) - moment).total_seconds()


def _offset(moment: datetime) -> timedelta:
    begins = _sunday(moment.year, 3, 2) + timedelta(hours=10)
    ends = _sunday(moment.year, 11, 1) + timedelta(hours=9)
    return timedelta(hours=-7 if begins <= moment < ends else -8)


def _sunday(year: int, month: int, number: int) -> datetime:
    first = datetime(year, month, 1, tzinfo=UTC)
    return first + timedelta(days=(6 - first.weekday()) % 7 + 7 * (number - 1))


GEMINI = Pack(
    name="gemini",
    aliases=("google", "google-genai", "google_genai"),
    hosts=("generativelanguage.googleapis.com",),
    modules=("google",),
    codes=codes((NO_MONEY, "payment_required"), (USED_UP, "quota_exceeded"), (AUTH, "API_KEY_INVALID")),
    judge=_judge,
    read_wait=_read_wait,
)

VERTEX = Pack(
    name="vertex",
    aliases=("vertexai", "vertex-ai", "vertex_ai"),
    hosts=("aiplatform.googleapis.com",),
    # Pay-as-you-go capacity is shared by all customers: it is short now, whatever our own rate.
    codes=codes((OVERLOADED, "RESOURCE_EXHAUSTED")),
    judge=_judge,
    read_wait=_read_wait,
)
