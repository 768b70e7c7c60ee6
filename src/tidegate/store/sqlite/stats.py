"""Figures that never scan what is finished, and the manifests of applications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw
import msgspec

from tidegate.domain.upstream import GateKind
from tidegate.policy.admission import blocked
from tidegate.store.figures import Figures, first_minute
from tidegate.store.rows import QueueStats
from tidegate.store.sqlite import gates, query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable

_SQL = load("queue_stats")
_SAVE = load("save_manifest")["save"]
_ALL = load("manifests")["all"]


def queue_stats(db: apsw.Connection, now: float) -> list[QueueStats]:
    """Return each queue that holds a task or finished one in the last ten minutes, by name.

    The ten minutes are the one under way and the nine full ones before it.
    """
    figures, first = Figures(), first_minute(now)
    figures.ready(query.rows(db, _SQL["ready"]))
    figures.counted("running", query.rows(db, _SQL["running"]))
    figures.waiting(query.rows(db, _SQL["waiting"]))
    figures.counted("dead", query.rows(db, _SQL["dead"]))
    figures.blocked(_blocked(db, now))
    figures.staged(query.rows(db, _SQL["staged"]))
    figures.done(query.rows(db, _SQL["done"], (first, int(now // 60) - 1)))
    figures.history(now, {queue for queue in figures.queues if _done_before(db, queue, first)})
    return figures.stats()


def save_manifest(db: apsw.Connection, now: float, app: str, manifest: Mapping[str, Any]) -> None:
    """Keep what an application declares."""
    db.execute(_SAVE, (storable(app), msgspec.json.encode(manifest).decode(), now))


def manifests(db: apsw.Connection) -> dict[str, dict[str, Any]]:
    """Return the kept manifests by application."""
    return {app: msgspec.json.decode(body, type=dict[str, Any]) for app, body in query.rows(db, _ALL)}


def _blocked(db: apsw.Connection, now: float) -> list[tuple[str, int, float | None]]:
    """Return by queue how many ready tasks gates and exhausted limits keep back, and the oldest other one."""
    shut = [row for row in gates.rows(db) if blocked(row, now) is not None]
    if not shut:
        return []
    upstreams = query.names_array(row.name for row in shut if row.kind is GateKind.UPSTREAM)
    functions = query.names_array(row.name for row in shut if row.kind is GateKind.FUNCTION)
    return [
        (queue, tasks, query.value(db, _SQL["oldest_runnable"], (queue, upstreams, functions)))
        for queue, tasks in query.rows(db, _SQL["blocked"], (upstreams, functions))
    ]


def _done_before(db: apsw.Connection, queue: str, minute: int) -> bool:
    return bool(query.value(db, _SQL["done_before"], (queue, minute)))
