"""Build `QueueStats` from counted rows. Each back end reads the rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidegate.domain.text import counted
from tidegate.limits.pauses import Pauses
from tidegate.policy.backlog import WORKERS, Backlog, WaitKind, WaitReason
from tidegate.policy.drain import DrainWork, QueueHistory
from tidegate.policy.drain_estimate import estimate_drains
from tidegate.store.rows import QueueStats

WINDOW_MINUTES = 10
"""The current minute and the nine full minutes before it."""
MINUTE_SECONDS = 60.0

Row = Iterable[Any]


class QueueStatsBuilder:
    """Collects the fields of `QueueStats` by queue, from rows in any order."""

    def __init__(self) -> None:
        self._by_queue: dict[str, dict[str, Any]] = defaultdict(dict)
        self._firsts: dict[str, float] = {}

    def add_backlogs(self, found: Mapping[str, Backlog]) -> None:
        """Add the reasons for which ready tasks of each queue wait."""
        for queue, backlog in found.items():
            self._by_queue[queue].update(
                ready=backlog.ready,
                paced=backlog.paced,
                blocked=backlog.blocked,
                oldest_ready_at=backlog.oldest_at,
                waits=tuple(backlog.waits),
            )

    def add_pauses(self, pauses: Pauses) -> None:
        """Add the pauses of queues."""
        for queue in pauses.queues:
            self._by_queue[queue]["pause"] = pauses.of_queue(queue)

    def add_counts(self, field: str, rows: Iterable[Row]) -> None:
        """Add rows of (queue, tasks) to a field."""
        for queue, tasks in rows:
            self._by_queue[queue][field] = tasks

    def add_waiting(self, rows: Iterable[Row]) -> None:
        """Add rows of (queue, state, tasks)."""
        for queue, state, tasks in rows:
            self._by_queue[queue][state] = tasks

    def add_batches(self, rows: Iterable[Row]) -> None:
        """Add rows of (queue, whether ready, tasks, since when) to the counts collected so far."""
        for queue, is_ready, tasks, since in rows:
            mine = self._by_queue[queue]
            state = "ready" if is_ready else "scheduled"
            mine[state] = mine.get(state, 0) + tasks
            if is_ready:
                mine["oldest_ready_at"] = min(since, mine.get("oldest_ready_at") or since)

    def add_finished(self, rows: Iterable[Row], now: float) -> None:
        """Add rows of finished and enqueued tasks.

        Columns: queue; tasks finished in the window, in the last full minute and in this minute; time of the
        first finish; tasks enqueued in the last full minute and in this minute.
        """
        for queue, done, last_minute, this_minute, first_final_at, new_before, new_now in rows:
            if queue in self._by_queue and (new := count_in_last_minute(new_before, new_now, now)):
                self._by_queue[queue]["enqueued_last_minute"] = new
            if done:
                is_recent = first_final_at is not None and first_final_at >= now - MINUTE_SECONDS
                lately = done if is_recent else count_in_last_minute(last_minute, this_minute, now)
                self._by_queue[queue].update(done_last_minute=lately, done_last_10_minutes=done)
                self._firsts[queue] = first_final_at

    def set_history(self, now: float, done_ever: Mapping[str, int]) -> None:
        """Set the length of the period for which completions were counted.

        `done_ever` has the number of tasks of each queue that ever became final.
        """
        for queue, mine in self._by_queue.items():
            if done_ever.get(queue, 0) > mine.get("done_last_10_minutes", 0):
                mine["history_seconds"] = now - first_window_minute(now) * 60.0
            elif queue in self._firsts:
                mine["history_seconds"] = max(1.0, now - self._firsts[queue])

    def build(self, work: DrainWork) -> list[QueueStats]:
        """Return the statistics of each queue, by name, with its drain estimate.

        Args:
            work: All work that is not blocked.
        """
        found = [QueueStats(queue, **self._by_queue[queue]) for queue in sorted(self._by_queue)]
        drains = estimate_drains(work, {stats.queue: _history_of(stats) for stats in found})
        return [replace(stats, drain=drains[stats.queue]) for stats in found]


def _history_of(stats: QueueStats) -> QueueHistory:
    blocked = sorted(
        (wait for wait in stats.waits if wait.kind is WaitKind.BLOCKED), key=lambda wait: -wait.tasks
    )
    left_out = [f"{counted(wait.tasks, 'task')} blocked: {wait.by}: {wait.reason}" for wait in blocked]
    waiting = {
        "retrying": stats.retrying,
        "scheduled": stats.scheduled,
        "held": stats.held,
        "suspended": stats.suspended,
    }
    left_out += [f"{counted(tasks, 'task')} {state}" for state, tasks in waiting.items() if tasks]
    return QueueHistory(
        stats.done_last_10_minutes,
        stats.history_seconds,
        stats.done_last_minute,
        tuple(left_out),
        _block_name(blocked[0]) if blocked else "",
    )


def _block_name(wait: WaitReason) -> str:
    """Return the name of the cause that blocks tasks: `workers`, `paused` or `gate`."""
    if wait.by == WORKERS:
        return "workers"
    return "paused" if wait.by.startswith(("queue ", "function ")) else "gate"


def count_in_last_minute(last_minute: int, this_minute: int, now: float) -> int:
    """Return how many tasks were counted in the last 60 seconds, computed from counts per minute.

    The last full minute counts in part. The result is rounded up, so that 0 means that no task was counted.
    """
    share = 1.0 - now % MINUTE_SECONDS / MINUTE_SECONDS
    return this_minute + math.ceil(last_minute * share)


def first_window_minute(now: float) -> int:
    """Return the first minute of the window."""
    return int(now // 60) - WINDOW_MINUTES + 1
