"""Figures that never scan what is finished, and the manifests of applications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw
import msgspec

from tidegate.policy.admission import counted
from tidegate.policy.backlog import Backlog, Lane, Unserved, backlogs
from tidegate.store.figures import Figures, first_minute
from tidegate.store.rows import QueueStats
from tidegate.store.sqlite import gates, query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable

_SQL = load("queue_stats")
_SAVE = load("save_manifest")["save"]
_ALL = load("manifests")["all"]


def queue_stats(db: apsw.Connection, now: float, unserved: Unserved | None = None) -> list[QueueStats]:
    """Return each queue that holds a task or finished one in the last ten minutes, by name.

    The ten minutes are the one under way and the nine full ones before it.
    """
    figures, first = Figures(), first_minute(now)
    figures.backlogs(_backlogs(db, now, unserved))
    figures.counted("running", query.rows(db, _SQL["running"]))
    figures.waiting(query.rows(db, _SQL["waiting"]))
    figures.counted("dead", query.rows(db, _SQL["dead"]))
    figures.staged(query.rows(db, _SQL["staged"]))
    figures.done(query.rows(db, _SQL["done"], (first, int(now // 60) - 1)), now)
    figures.history(now, {queue for queue in figures.queues if _done_before(db, queue, first)})
    return figures.stats()


def save_manifest(db: apsw.Connection, now: float, app: str, manifest: Mapping[str, Any]) -> None:
    """Keep what an application declares."""
    db.execute(_SAVE, (storable(app), msgspec.json.encode(manifest).decode(), now))


def manifests(db: apsw.Connection) -> dict[str, dict[str, Any]]:
    """Return the kept manifests by application."""
    return {app: msgspec.json.decode(body, type=dict[str, Any]) for app, body in query.rows(db, _ALL)}


def _backlogs(db: apsw.Connection, now: float, unserved: Unserved | None) -> dict[str, Backlog]:
    every = gates.rows(db)
    lanes = [Lane(*row) for row in query.rows(db, _SQL["ready"])]
    return backlogs(lanes, every, gates.in_flight(db, now, counted(every, now)), now, unserved)


def _done_before(db: apsw.Connection, queue: str, minute: int) -> bool:
    return bool(query.value(db, _SQL["done_before"], (queue, minute)))
