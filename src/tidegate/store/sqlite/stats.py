"""Figures that never scan what is finished, and the manifests of applications."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import apsw
import msgspec

from tidegate.store.rows import QueueStats
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable

_SQL = load("queue_stats")
_SAVE = load("save_manifest")["save"]
_ALL = load("manifests")["all"]

_WINDOW_MINUTES = 10

Figures = dict[str, dict[str, Any]]
"""Fields of `QueueStats` by queue."""


def queue_stats(db: apsw.Connection, now: float) -> list[QueueStats]:
    """Return each queue that holds a task or finished one in the last ten minutes, by name.

    The ten minutes are the one under way and the nine full ones before it.
    """
    figures: Figures = defaultdict(dict)
    _count_live(db, figures)
    _count_done(db, now, figures)
    return [QueueStats(queue, **figures[queue]) for queue in sorted(figures)]


def save_manifest(db: apsw.Connection, now: float, app: str, manifest: Mapping[str, Any]) -> None:
    """Keep what an application declares."""
    db.execute(_SAVE, (storable(app), msgspec.json.encode(manifest).decode(), now))


def manifests(db: apsw.Connection) -> dict[str, dict[str, Any]]:
    """Return the kept manifests by application."""
    return {app: msgspec.json.decode(body, type=dict[str, Any]) for app, body in query.rows(db, _ALL)}


def _count_live(db: apsw.Connection, figures: Figures) -> None:
    for queue, tasks, oldest in query.rows(db, _SQL["ready"]):
        figures[queue].update(ready=tasks, oldest_ready_at=oldest)
    for queue, tasks in query.rows(db, _SQL["running"]):
        figures[queue]["running"] = tasks
    for queue, state, tasks in query.rows(db, _SQL["waiting"]):
        figures[queue][state] = tasks
    for queue, tasks in query.rows(db, _SQL["dead"]):
        figures[queue]["dead"] = tasks
    for queue, is_ready, tasks, since in query.rows(db, _SQL["staged"]):
        mine = figures[queue]
        state = "ready" if is_ready else "scheduled"
        mine[state] = mine.get(state, 0) + tasks
        if is_ready:
            mine["oldest_ready_at"] = min(since, mine.get("oldest_ready_at", since))


def _count_done(db: apsw.Connection, now: float, figures: Figures) -> None:
    minute = int(now // 60)
    first = minute - _WINDOW_MINUTES + 1
    for queue, done, last_minute, first_final_at in query.rows(db, _SQL["done"], (first, minute - 1)):
        if done:
            figures[queue].update(done_last_minute=last_minute, done_last_10_minutes=done)
        if done and not _done_before(db, queue, first):
            figures[queue]["history_seconds"] = max(1.0, now - first_final_at)
    for queue in figures:
        if "history_seconds" not in figures[queue] and _done_before(db, queue, first):
            figures[queue]["history_seconds"] = now - first * 60.0


def _done_before(db: apsw.Connection, queue: str, minute: int) -> bool:
    return bool(query.value(db, _SQL["done_before"], (queue, minute)))
