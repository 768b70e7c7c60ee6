"""Putting together what a store counted: queues at a glance. Which rows are read, each back end knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from tidegate.store.rows import QueueStats

WINDOW_MINUTES = 10
"""The minute under way and the nine full ones before it."""

Row = Iterable[Any]


class Figures:
    """Gathers the fields of `QueueStats` by queue, from rows in any order."""

    def __init__(self) -> None:
        self._by_queue: dict[str, dict[str, Any]] = defaultdict(dict)
        self._firsts: dict[str, float] = {}

    def ready(self, rows: Iterable[Row]) -> None:
        """Take rows of (queue, tasks, when the first became ready)."""
        for queue, tasks, oldest in rows:
            self._by_queue[queue].update(ready=tasks, oldest_ready_at=oldest)

    def blocked(self, rows: Iterable[Row]) -> None:
        """Take rows of (queue, ready tasks that are kept back, when the first other one became ready)."""
        for queue, tasks, oldest in rows:
            mine = self._by_queue[queue]
            mine.update(ready=mine["ready"] - tasks, blocked=tasks, oldest_ready_at=oldest)

    def counted(self, field: str, rows: Iterable[Row]) -> None:
        """Take rows of (queue, tasks) for a field."""
        for queue, tasks in rows:
            self._by_queue[queue][field] = tasks

    def waiting(self, rows: Iterable[Row]) -> None:
        """Take rows of (queue, state, tasks)."""
        for queue, state, tasks in rows:
            self._by_queue[queue][state] = tasks

    def staged(self, rows: Iterable[Row]) -> None:
        """Take rows of (queue, whether ready, tasks, since when), to be added to what is there."""
        for queue, is_ready, tasks, since in rows:
            mine = self._by_queue[queue]
            state = "ready" if is_ready else "scheduled"
            mine[state] = mine.get(state, 0) + tasks
            if is_ready:
                mine["oldest_ready_at"] = min(since, mine.get("oldest_ready_at") or since)

    def done(self, rows: Iterable[Row]) -> None:
        """Take rows of (queue, ends in the window, ends in the last full minute, the first end's moment)."""
        for queue, done, last_minute, first_final_at in rows:
            if done:
                self._by_queue[queue].update(done_last_minute=last_minute, done_last_10_minutes=done)
                self._firsts[queue] = first_final_at

    @property
    def queues(self) -> list[str]:
        """Those known so far."""
        return list(self._by_queue)

    def history(self, now: float, done_before: Collection[str]) -> None:
        """Say how far back ends are known, given the queues that had some before the window."""
        for queue, mine in self._by_queue.items():
            if queue in done_before:
                mine["history_seconds"] = now - first_minute(now) * 60.0
            elif queue in self._firsts:
                mine["history_seconds"] = max(1.0, now - self._firsts[queue])

    def stats(self) -> list[QueueStats]:
        """Return each queue at a glance, by name."""
        return [QueueStats(queue, **self._by_queue[queue]) for queue in sorted(self._by_queue)]


def first_minute(now: float) -> int:
    """Return the first minute of the window."""
    return int(now // 60) - WINDOW_MINUTES + 1
