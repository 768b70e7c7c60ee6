"""Figures that never scan what is finished, and the manifests of applications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.domain.upstream import GateKind
from tidegate.policy.admission import blocked
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


async def queue_stats(db: Session) -> list[QueueStats]:
    """Return each queue that holds a task or finished one in the last ten minutes, by name.

    The ten minutes are the one under way and the nine full ones before it.
    """
    now: float = await db.value(_NOW, db.at)
    figures, first = Figures(), first_minute(now)
    figures.ready(await db.rows(_SQL["ready"]))
    figures.counted("running", await db.rows(_SQL["running"]))
    figures.waiting(await db.rows(_SQL["waiting"]))
    figures.counted("dead", await db.rows(_SQL["dead"]))
    figures.blocked(await _blocked(db, now))
    figures.staged(await db.rows(_SQL["staged"]))
    figures.done(await db.rows(_SQL["done"], first, int(now // 60) - 1))
    figures.history(now, set(await db.column(_SQL["done_before"], figures.queues, first)))
    return figures.stats()


async def _blocked(db: Session, now: float) -> list[Any]:
    """Return by queue how many ready tasks gates and exhausted limits keep back, and the oldest other one."""
    shut = [row for row in await gates.rows(db) if blocked(row, now) is not None]
    if not shut:
        return []
    upstreams = [row.name for row in shut if row.kind is GateKind.UPSTREAM]
    return await db.rows(
        _SQL["blocked"], upstreams, [row.name for row in shut if row.kind is GateKind.FUNCTION]
    )


async def save_manifest(db: Session, app: str, manifest: Mapping[str, Any]) -> None:
    """Keep what an application declares."""
    await db.run(_SAVE, db.at, storable(app), msgspec.json.encode(manifest).decode())


async def manifests(db: Session) -> dict[str, dict[str, Any]]:
    """Return the kept manifests by application."""
    return {app: msgspec.json.decode(body, type=dict[str, Any]) for app, body in await db.rows(_ALL)}
