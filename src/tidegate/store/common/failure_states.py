"""Marks of people on groups of failures, failures that no rule classified, and which days were reported."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.domain.text import redacted_text
from tidegate.store.alert_rows import NewNotice
from tidegate.store.common.alerts import add_notices
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.failure_rows import FailureMark, MarkKind, UnknownFailureRow

_SAMPLE_LIMIT = 100
_DEATH_STATES = (MarkKind.RESOLVED, MarkKind.MUTED)
"""A group has at most one of these marks."""


async def mark_failure(
    db: Session, fingerprint: str, kind: MarkKind, *, by: str, note: str = "", seconds: float | None = None
) -> None:
    """Mark a group of failures, in place of an earlier mark. A group is not both resolved and muted."""
    sql = db.sql("failure_marks")
    await db.run(sql["clear"], fingerprint, _kinds(_DEATH_STATES if kind in _DEATH_STATES else (kind,)))
    await db.run(sql["mark"], fingerprint, str(kind), db.at, storable(by), storable(note), seconds)


async def unmark_failure(db: Session, fingerprint: str, kinds: Sequence[MarkKind]) -> bool:
    """Remove marks of a group; return whether it had one of them."""
    return await db.run(db.sql("failure_marks")["clear"], fingerprint, _kinds(kinds)) > 0


async def list_failure_marks(db: Session, fingerprint: str | None = None) -> list[FailureMark]:
    """Return all marks, or those of one group, each with the last death of its group."""
    sql = db.sql("failure_marks")
    marks = await db.rows(sql["marks"], fingerprint)
    latest: dict[str, float] = dict(await db.rows(sql["latest"])) if marks else {}  # type: ignore[arg-type]
    return [
        FailureMark(
            name, MarkKind(kind), marked_at, marked_by, note, until_at, _latest(last_at, latest.get(name))
        )
        for name, kind, marked_at, marked_by, note, until_at, last_at in marks
    ]


async def list_unknown_failures(
    db: Session, since: float, until: float, *, function: str | None = None
) -> list[UnknownFailureRow]:
    """Return the failed attempts that no rule classified, by fingerprint, the largest group first."""
    sql = db.sql("list_unknown_failures")
    groups = await db.rows(sql["groups"], since, until, function)
    names = [(fingerprint,) for fingerprint, *_ in groups]
    details = {name: rest for name, *rest in await db.run_each(sql["details"], names, since, until)}
    samples = {name: rest for name, *rest in await db.run_each(sql["sample"], names, since, until)}
    found = []
    for fingerprint, attempts, tasks, first_at, last_at in groups:
        error_class, shape, frame, functions, succeeded = details[fingerprint]
        message, task = samples[fingerprint]
        found.append(
            UnknownFailureRow(
                fingerprint,
                error_class or "",
                shape or "",
                frame or "",
                attempts,
                tasks,
                succeeded,
                first_at,
                last_at,
                tuple(sorted(msgspec.json.decode(functions or "[]", type=list[str]))),
                redacted_text(message, _SAMPLE_LIMIT),
                db.text(task),
            )
        )
    return sorted(found, key=lambda each: (-each.attempts, each.fingerprint))


async def is_day_reported(db: Session, day: str) -> bool:
    """Return whether the summary of a day was reported."""
    return await db.value(db.sql("claim_daily_summary")["reported"], day) is not None


async def claim_daily_summary(
    db: Session, day: str, *, keep_from: str, notices: Sequence[NewNotice] = ()
) -> bool:
    """Store the messages about a day, unless another process has; return whether this one did."""
    sql = db.sql("claim_daily_summary")
    await db.run(sql["old"], keep_from)
    is_first = await db.run(sql["claim"], day, db.at) > 0
    if is_first and notices:
        await add_notices(db, notices)
    return is_first


def _latest(*moments: float | None) -> float | None:
    return max((each for each in moments if each is not None), default=None)


def _kinds(kinds: Sequence[MarkKind]) -> str:
    return msgspec.json.encode([str(kind) for kind in kinds]).decode()
