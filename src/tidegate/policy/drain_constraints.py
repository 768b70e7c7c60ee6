"""The *constraints* that may hold queues up. Each computes how fast it lets groups of tasks start.

`CONSTRAINTS` is the list of them: a limit on tokens or money is one more function there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.domain.text import counted, format_duration
from tidegate.policy.drain import DrainChannel, DrainLimit, DrainWork, DrainWorker


@dataclass(frozen=True, slots=True)
class Bound:
    """How fast one constraint lets a group of tasks start, in its own unit: tasks, or seconds of slots."""

    constraint: str
    channels: Collection[DrainChannel]
    """The tasks that share the constraint. The constraint delays those of these queues that have runnable
    tasks."""
    load: float
    """What all the tasks together need."""
    capacity: float
    """What the constraint allows per second."""
    arriving: float
    """What new tasks need per second."""
    per_task: float
    """How much of the constraint one task needs on average."""
    text: str
    extra_seconds: float = 0.0
    """Seconds to add: before the first task may start, or after the last task has started."""

    @property
    def seconds(self) -> float:
        """Seconds until the load is done; infinity if new tasks arrive as fast."""
        left = self.capacity - self.arriving
        if self.load <= 0:
            return 0.0
        return self.load / left + self.extra_seconds if left > 0 else math.inf

    @property
    def short_per_minute(self) -> float:
        """How many more tasks a minute arrive than the constraint lets start."""
        return 60.0 * (self.arriving - self.capacity) / self.per_task


Constraint = Callable[[DrainWork, Sequence[DrainChannel]], Iterable[Bound]]
"""Takes the work, and the channels that compete: those at least as urgent as the tasks in question. Returns
how fast the constraint lets groups of them start, without groups of which too little is known."""


def slots_of_workers(work: DrainWork, channels: Sequence[DrainChannel]) -> Iterator[Bound]:
    """Bound each queue by the slots of its workers, and the queues that share workers by all their slots."""
    by_queue = _by(channels, lambda channel: channel.queue)
    slots = _slots_by_queues(work.workers)
    for queue, own in by_queue.items():
        mine = sum(number for queues, number in slots.items() if DrainWorker(queues, number).serves(queue))
        yield from _slots(own, mine, f"for {queue}")
    for queues, number in _sharing(slots, by_queue):
        if len(queues) > 1:
            shared = [channel for queue in queues for channel in by_queue[queue]]
            yield from _slots(shared, number, f"for {counted(len(queues), 'queue')}")


def _slots(channels: Sequence[DrainChannel], slots: int, which: str) -> Iterator[Bound]:
    tasks = sum(channel.runnable for channel in channels)
    if slots <= 0 or not tasks:
        return
    if any(channel.runnable and channel.run_seconds is None for channel in channels):
        return
    load = sum(channel.work for channel in channels)
    mean = sum(channel.runnable * channel.slot_seconds for channel in channels) / tasks
    last_round = (math.ceil(tasks / slots) - tasks / slots) * mean
    text = f"{counted(slots, 'slot')} {which}, a task takes {format_duration(mean)}"
    arriving = sum(channel.arrivals * channel.slot_seconds for channel in channels)
    yield Bound("slots", channels, load, slots, arriving, max(mean, 1e-9), text, last_round)


def _slots_by_queues(workers: Sequence[DrainWorker]) -> Mapping[frozenset[str], int]:
    """Return the slots of all workers that serve the same queues."""
    found: dict[frozenset[str], int] = defaultdict(int)
    for worker in workers:
        found[frozenset(worker.queues)] += worker.slots
    return found


def _sharing(slots: Mapping[frozenset[str], int], queues: Collection[str]) -> Iterator[tuple[list[str], int]]:
    """Yield groups of queues that share workers, directly or through other queues, with all their slots."""
    groups: list[tuple[set[str], int]] = []
    for served, number in slots.items():
        worker = DrainWorker(served, number)
        joined, total = {queue for queue in queues if worker.serves(queue)}, number
        for other in [group for group in groups if group[0] & joined]:
            groups.remove(other)
            joined |= other[0]
            total += other[1]
        groups.append((joined, total))
    for names, total in groups:
        yield sorted(names), total


def rate_of_limits(work: DrainWork, channels: Sequence[DrainChannel]) -> Iterator[Bound]:
    """Bound the tasks of each upstream and limited function by the requests that it allows."""
    for limit, covered in _limits(work, channels):
        rate = limit.starts_per_second
        if rate is None:
            continue
        tasks = sum(channel.runnable for channel in covered)
        calls = sum(channel.runnable * channel.runs_per_task for channel in covered)
        arriving = sum(channel.arrivals * channel.runs_per_task for channel in covered)
        until_last = limit.start_seconds(math.ceil(calls)) if limit.start_seconds else calls / rate
        last_run = max(channel.run_seconds or 0.0 for channel in covered if channel.runnable)
        text = f"{limit.name} lets {per_minute(rate)} start"
        yield Bound("requests", covered, until_last * rate, rate, arriving, calls / tasks, text, last_run)


def calls_at_once(work: DrainWork, channels: Sequence[DrainChannel]) -> Iterator[Bound]:
    """Bound the tasks of each upstream by the calls that it allows at once."""
    for limit, covered in _limits(work, channels):
        if (most := limit.max_at_once) is None:
            continue
        for bound in _slots(covered, most, ""):
            mean = format_duration(bound.per_task)
            text = f"{limit.name} allows {counted(most, 'call')} at once, a task takes {mean}"
            yield replace(bound, constraint="in_flight", text=text)


def _limits(
    work: DrainWork, channels: Sequence[DrainChannel]
) -> Iterator[tuple[DrainLimit, list[DrainChannel]]]:
    """Yield the limits that runnable tasks must pass, with the channels that must pass them."""
    by_upstream = _by(channels, lambda channel: channel.upstream)
    by_function = _by(channels, lambda channel: channel.function)
    for limit in work.limits:
        covered = (
            by_upstream.get(limit.upstream, []) if limit.upstream else by_function.get(limit.function, [])
        )
        if any(channel.runnable for channel in covered):
            yield limit, covered


def _by(
    channels: Sequence[DrainChannel], key: Callable[[DrainChannel], str]
) -> Mapping[str, list[DrainChannel]]:
    found: dict[str, list[DrainChannel]] = defaultdict(list)
    for channel in channels:
        found[key(channel)].append(channel)
    return found


CONSTRAINTS: tuple[Constraint, ...] = (slots_of_workers, rate_of_limits, calls_at_once)
"""Every constraint. Each is one function. To add a limit, add a function here."""


def per_minute(rate: float) -> str:
    """Return a rate per second as text."""
    return f"{60.0 * rate:.3g} per minute"
