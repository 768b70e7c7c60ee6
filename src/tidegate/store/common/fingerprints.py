"""Find fingerprints, and add fingerprints that older code left out."""

from __future__ import annotations

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.store.common.deaths import describe
from tidegate.store.common.outcomes import storable_fingerprint
from tidegate.store.common.session import Session

_REASONS, _VERDICTS = frozenset(Reason), frozenset(Verdict)


async def find_fingerprints(db: Session, digits: str, *, limit: int = 2) -> list[str]:
    """Return the known fingerprints that begin with these digits, in order."""
    return list(await db.column(db.sql("find_fingerprints")["find"], digits, digits + "g", limit))


async def has_unnamed(db: Session) -> bool:
    """Return whether any death or unclassified failure lacks a fingerprint."""
    return await db.value(db.sql("add_fingerprints")["has_unnamed"]) is not None


async def add_fingerprints(db: Session, limit: int) -> int:
    """Add up to `limit` fingerprints to attempts, and as many to dead letters; return how many were added."""
    sql = db.sql("add_fingerprints")
    named, found = [], []
    for task_id, run, verdict, reason, error_class, message, traceback in await db.rows(
        sql["unnamed"], limit
    ):
        failure = Failure(
            Verdict(verdict) if verdict in _VERDICTS else Verdict.UNKNOWN,
            Reason(reason) if reason in _REASONS else Reason.UNKNOWN,
            message,
            error_class,
            traceback=traceback,
        )
        fingerprint = storable_fingerprint(failure)
        named.append((task_id, run, fingerprint.id))
        found.append(fingerprint)
    await describe(db, found)
    await db.run_each(sql["name_attempts"], named)
    return len(named) + await db.run(sql["name_letters"], limit)
