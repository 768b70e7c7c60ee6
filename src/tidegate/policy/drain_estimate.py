"""Estimates when the backlog of each queue clears, and names the constraint that decides.

A queue clears when the slowest of its constraints has let its tasks through. An estimate leaves out blocked
tasks, and includes paced tasks at the rate of their limit. Queues that share slots or a limit share them with
all work that is at least as urgent. New tasks arrive at the steady rate of the last minutes: a batch that was
just enqueued is backlog, not a rate.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.policy.drain import EMPTY, Drain, DrainChannel, DrainKind, DrainWork, QueueHistory
from tidegate.policy.drain_constraints import CONSTRAINTS, Bound, per_minute

BUSY_SECONDS = 60.0
"""A queue whose oldest runnable task has waited this long was never empty in the last minute. So the number
that the queue finished in that minute is what it can finish."""
STUCK_SECONDS = 600.0
"""A queue is stuck if a task has waited this long and no task of the queue finished or ran meanwhile."""
_MEASURED_SHARE = 0.8
"""The measured rate decides only if it is less than this share of the rate that the constraints allow."""
_IGNORED_MINUTES = 2
"""The busiest minutes of enqueues are no part of the steady rate: they are batches."""


def estimate_drains(work: DrainWork, histories: Mapping[str, QueueHistory]) -> dict[str, Drain]:
    """Return the estimate of each queue that has an entry in `histories`."""
    runnable: dict[str, list[DrainChannel]] = defaultdict(list)
    for channel in work.channels:
        if channel.runnable:
            runnable[channel.queue].append(channel)
    by_priority = {
        priority: _Bounds(work, priority)
        for priority in {_least_urgent(channels) for channels in runnable.values()}
    }
    found = {}
    for queue, history in histories.items():
        if own := runnable.get(queue):
            found[queue] = _estimate(work, by_priority[_least_urgent(own)], queue, own, history)
        else:
            found[queue] = _without_work(history)
    return found


class _Bounds:
    """The bounds for the tasks of one priority and of all more urgent priorities.

    Args:
        work: The work.
        priority: The priority.
    """

    def __init__(self, work: DrainWork, priority: int) -> None:
        channels = [channel for channel in work.channels if channel.priority <= priority]
        self._by_queue: dict[str, list[Bound]] = defaultdict(list)
        self._limited: set[int] = set()
        for bound in (bound for constraint in CONSTRAINTS for bound in constraint(work, channels)):
            for queue in {channel.queue for channel in bound.channels if channel.runnable}:
                self._by_queue[queue].append(bound)
            if bound.constraint != "slots":
                self._limited.update(map(id, bound.channels))

    def of(self, queue: str) -> list[Bound]:
        """Return the bounds that hold a queue up."""
        return self._by_queue.get(queue, [])

    def is_limited(self, channel: DrainChannel) -> bool:
        """Return whether a limit of its upstream or function decides how fast a channel's tasks start."""
        return id(channel) in self._limited


def _least_urgent(channels: Sequence[DrainChannel]) -> int:
    return max(channel.priority for channel in channels)


def steady_rate(counts: Sequence[int]) -> float:
    """Return how many tasks arrive per second, from the counts of full minutes; 0 for few minutes.

    The busiest minutes are left out, so that a batch of many tasks does not count as a rate.
    """
    kept = sorted(counts)[: max(0, len(counts) - _IGNORED_MINUTES)]
    return sum(kept) / (60.0 * len(kept)) if kept else 0.0


def _without_work(history: QueueHistory) -> Drain:
    if not history.blocked_by:
        return replace(EMPTY, left_out=history.left_out)
    text = history.left_out[0] if history.left_out else ""
    return Drain(DrainKind.BLOCKED, None, history.blocked_by, text, None, history.left_out)


def _estimate(
    work: DrainWork, found: _Bounds, queue: str, own: Sequence[DrainChannel], history: QueueHistory
) -> Drain:
    bounds = found.of(queue)
    slowest = max(bounds, key=lambda bound: bound.seconds, default=None)
    has_slots = any(bound.constraint == "slots" for bound in bounds)
    is_limited = all(map(found.is_limited, own))
    measured = _measured(work, own, history)
    if history.seconds > 0 and history.done == 0 and _is_stuck(work, own):
        text = "none finished or ran in the last ten minutes"
        return Drain(DrainKind.NEVER, None, "completions", text, None, history.left_out)
    if slowest is None or not (has_slots or is_limited):
        if history.seconds <= 0:
            return Drain(DrainKind.UNKNOWN, text="no task of it has finished yet", left_out=history.left_out)
        if history.done == 0:
            text = "none finished in the last ten minutes"
            return Drain(DrainKind.NEVER, None, "completions", text, None, history.left_out)
        slowest = max([measured, *bounds], key=lambda bound: bound.seconds)
    elif (
        _was_busy(work, own)
        and history.done_last_minute
        and slowest.seconds < _MEASURED_SHARE * measured.seconds
    ):
        slowest = measured
    return _drain(slowest, history)


def _drain(bound: Bound, history: QueueHistory) -> Drain:
    if math.isinf(bound.seconds):
        short = max(0.0, bound.short_per_minute)
        return Drain(DrainKind.NEVER, None, bound.constraint, bound.text, short, history.left_out)
    return Drain(DrainKind.SECONDS, bound.seconds, bound.constraint, bound.text, None, history.left_out)


def _measured(work: DrainWork, own: Sequence[DrainChannel], history: QueueHistory) -> Bound:
    """Return the bound by what the queue finished in the last minute or ten minutes, whichever is faster.

    With the longer period alone, a queue that was idle or blocked before would seem slow.
    """
    lately = history.done_last_minute / min(60.0, max(1.0, history.seconds))
    rate = max(history.done / max(1.0, history.seconds), lately)
    tasks = sum(channel.runnable for channel in own)
    arriving = sum(channel.arrivals for channel in own)
    text = f"{per_minute(rate)} finished lately"
    return Bound("completions", own, tasks, rate, arriving, 1.0, text)


def _was_busy(work: DrainWork, own: Sequence[DrainChannel]) -> bool:
    """Return whether tasks of a queue waited all through the last minute."""
    return _waited_seconds(work, own) >= BUSY_SECONDS


def _is_stuck(work: DrainWork, own: Sequence[DrainChannel]) -> bool:
    """Return whether tasks of a queue have waited for ten minutes while no task of the queue runs."""
    return _waited_seconds(work, own) >= STUCK_SECONDS and not any(channel.running for channel in own)


def _waited_seconds(work: DrainWork, own: Sequence[DrainChannel]) -> float:
    return work.now - min((channel.oldest_at or work.now for channel in own), default=work.now)
