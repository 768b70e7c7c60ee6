"""Figures that never scan what is finished, and the manifests of applications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.policy.admission import counted
from tidegate.policy.backlog import Backlog, Lane, Unserved, backlogs
from tidegate.store.figures import Figures, first_minute
from tidegate.store.postgres import gates
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load
from tidegate.store.rows import QueueStats
from tidegate.store.text import storable

_SQL = load("queue_stats")
_NOW = load("now")["now"]
_SAVE = load("save_manifest")["save"]
_ALL = load("manifests")["all"]


async def queue_stats(db: Session, unserved: Unserved | None = None) -> list[QueueStats]:
    """Return each queue that holds a task or finished one in the last ten minutes, by name.

    The ten minutes are the one under way and the nine full ones before it.
    """
    now: float = await db.value(_NOW, db.at)
    figures, first = Figures(), first_minute(now)
    figures.backlogs(await _backlogs(db, now, unserved))
    figures.counted("running", await db.rows(_SQL["running"]))
    figures.waiting(await db.rows(_SQL["waiting"]))
    figures.counted("dead", await db.rows(_SQL["dead"]))
    figures.staged(await db.rows(_SQL["staged"]))
    figures.done(await db.rows(_SQL["done"], first, int(now // 60) - 1), now)
    figures.history(now, set(await db.column(_SQL["done_before"], figures.queues, first)))
    return figures.stats()


async def _backlogs(db: Session, now: float, unserved: Unserved | None) -> dict[str, Backlog]:
    every = await gates.rows(db)
    lanes = [Lane(*row) for row in await db.rows(_SQL["ready"])]
    return backlogs(lanes, every, await gates.in_flight(db, now, counted(every, now)), now, unserved)


async def save_manifest(db: Session, app: str, manifest: Mapping[str, Any]) -> None:
    """Keep what an application declares."""
    await db.run(_SAVE, db.at, storable(app), msgspec.json.encode(manifest).decode())


async def manifests(db: Session) -> dict[str, dict[str, Any]]:
    """Return the kept manifests by application."""
    return {app: msgspec.json.decode(body, type=dict[str, Any]) for app, body in await db.rows(_ALL)}
