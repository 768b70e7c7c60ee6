"""Alerts: who evaluates them, episodes, notices, mutes, and reads that only alerts need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from tidegate.store.alert_rows import (
    AlertMute,
    AlertPass,
    BusyTask,
    ClaimedNotice,
    Connections,
    DisabledSink,
    Episode,
    EpisodeState,
    LastPass,
    NewlyFinalTask,
    NewNotice,
    PassResult,
    Severity,
    UnsentNotices,
    WorkerEnd,
)
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable

EPISODES_KEPT_SECONDS = 30 * 86_400.0
NOTICES_KEPT_SECONDS = 7 * 86_400.0
_FIRST_ID = "00000000-0000-0000-0000-000000000000"
"""Comes before every task id."""


async def is_pass_due(db: Session, interval_seconds: float) -> bool:
    """Return whether `begin_alert_pass` would return a pass."""
    return bool(await db.value(db.sql("alerts")["is_due"], interval_seconds, db.at))


async def begin_alert_pass(db: Session, evaluator: str, *, interval_seconds: float) -> AlertPass | None:
    """Return the next pass if it is due."""
    row = await db.row(db.sql("alerts")["begin"], storable(evaluator), interval_seconds, db.at)
    return None if row is None else AlertPass(*row)


async def end_alert_pass(db: Session, number: int, result: PassResult) -> bool:
    """Store what a pass found, unless a later pass has begun."""
    sql = db.sql("alerts")
    if not await db.run(sql["end"], number, db.at, result.usual_json):
        return False
    await db.run_each(sql["drop"], [(each,) for each in result.dropped])
    await db.run_each(sql["save"], [_columns(each) for each in result.episodes])
    await add_notices(db, result.notices)
    await db.run(sql["old_episodes"], db.at, EPISODES_KEPT_SECONDS)
    await db.run(sql["old_notices"], db.at, NOTICES_KEPT_SECONDS)
    await db.run(sql["old_mutes"], db.at)
    return True


async def get_last_alert_pass(db: Session) -> LastPass:
    """Return who made the latest pass."""
    row = await db.row(db.sql("alerts")["last_pass"])
    return LastPass(0, "", 0.0, None) if row is None else LastPass(*row)


async def list_current_episodes(db: Session) -> list[Episode]:
    """Return the pending and open episodes."""
    return _episodes(await db.rows(db.sql("alerts")["current"]))


async def list_ended_episodes(db: Session, limit: int = 50) -> list[Episode]:
    """Return the latest ended episodes."""
    return _episodes(await db.rows(db.sql("alerts")["ended"], limit))


async def mute_alerts(
    db: Session, rule: str, subject: str, seconds: float | None, *, by: str, why: str
) -> None:
    """Mute a rule for a subject."""
    values = (storable(rule), storable(subject), db.at, seconds, storable(by), storable(why))
    await db.run(db.sql("alerts")["mute"], *values)


async def unmute_alerts(db: Session, rule: str, subject: str) -> bool:
    """End a mute; return whether there was one."""
    return await db.run(db.sql("alerts")["unmute"], storable(rule), storable(subject)) > 0


async def list_alert_mutes(db: Session) -> list[AlertMute]:
    """Return the mutes in force."""
    return [AlertMute(*row) for row in await db.rows(db.sql("alerts")["mutes"], db.at)]


async def add_notices(db: Session, notices: Sequence[NewNotice]) -> None:
    """Store notices to be sent."""
    rows = [(each.id, storable(each.sink), each.about, each.kind, storable(each.body)) for each in notices]
    await db.run_each(db.sql("alerts")["add_notice"], rows, db.at)


async def has_due_notices(db: Session) -> bool:
    """Return whether a notice to any sink is due."""
    return bool(await db.value(db.sql("alerts")["has_due_notices"], db.at))


async def claim_notices(
    db: Session, sinks: Collection[str], *, lease_seconds: float, limit: int = 50
) -> list[ClaimedNotice]:
    """Return due notices for these sinks, in the order in which they were made."""
    names = msgspec.json.encode([storable(sink) for sink in sinks]).decode()
    rows = await db.rows(db.sql("alerts")["claim_notices"], names, db.at, lease_seconds, limit)
    return sorted((ClaimedNotice(*row) for row in rows), key=lambda each: (each.created_at, each.id))


async def finish_notice(db: Session, notice_id: str) -> None:
    """Record that a notice was delivered."""
    await db.run(db.sql("alerts")["delivered"], notice_id, db.at)


async def retry_notice(db: Session, notice_id: str, why: str, *, seconds: float | None) -> None:
    """Record that an attempt failed."""
    await db.run(db.sql("alerts")["failed"], notice_id, db.at, storable(why), seconds)


async def count_unsent_notices(db: Session) -> list[UnsentNotices]:
    """Return how many notices wait to be delivered, by sink."""
    return [UnsentNotices(*row) for row in await db.rows(db.sql("alerts")["unsent"])]


async def disable_sink(db: Session, name: str, target: str, why: str) -> None:
    """Record that a sink must not be used any more."""
    await db.run(db.sql("alerts")["disable_sink"], storable(name), target, db.at, storable(why))


async def enable_sink(db: Session, name: str) -> bool:
    """Use a sink again; return whether it was disabled."""
    return await db.run(db.sql("alerts")["enable_sink"], storable(name)) > 0


async def list_disabled_sinks(db: Session) -> list[DisabledSink]:
    """Return the disabled sinks."""
    return [DisabledSink(*row) for row in await db.rows(db.sql("alerts")["disabled_sinks"])]


async def list_worker_ends(db: Session) -> list[WorkerEnd]:
    """Return all worker processes whose rows are kept."""
    rows = await db.rows(db.sql("alerts")["workers"])
    return [WorkerEnd(*[*facts, bool(is_lost)]) for *facts, is_lost in rows]


async def list_busy_tasks(db: Session, *, runs: int, calls: int, limit: int = 20) -> list[BusyTask]:
    """Return unfinished tasks with many runs or many calls."""
    rows = await db.rows(db.sql("alerts")["busy_tasks"], runs, calls, limit)
    return [BusyTask(db.text(task_id), *rest) for task_id, *rest in rows]


async def list_newly_final_tasks(
    db: Session,
    since: float,
    until: float,
    *,
    is_dead: bool,
    after: NewlyFinalTask | None = None,
    limit: int = 1_000,
) -> list[NewlyFinalTask]:
    """Return tasks that became final in a range, oldest first."""
    last = (since, db.id(_FIRST_ID)) if after is None else (after.finished_at, db.id(after.task_id))
    rows = await db.rows(db.sql("alerts")["died" if is_dead else "finished"], since, until, limit, *last)
    return [NewlyFinalTask(db.text(task_id), *rest) for task_id, *rest in rows]


async def get_connections(db: Session) -> Connections | None:
    """Return the connections of the server; None for a file."""
    row = await db.row(db.sql("alerts")["connections"])
    return None if row is None or row[0] is None else Connections(int(row[0]), int(row[1]))


def _episodes(rows: Iterable[Sequence[Any]]) -> list[Episode]:
    return [
        Episode(*[*row[:3], EpisodeState(row[3]), Severity(row[4]), *row[5:-1], bool(row[-1])])
        for row in rows
    ]


def _columns(episode: Episode) -> tuple[Any, ...]:
    return (
        episode.id,
        episode.rule,
        storable(episode.subject),
        str(episode.state),
        str(episode.severity),
        episode.first_at,
        episode.opened_at,
        episode.calm_at,
        episode.last_at,
        episode.ended_at,
        episode.value,
        episode.threshold,
        storable(episode.detail),
        int(episode.is_notified),
    )
