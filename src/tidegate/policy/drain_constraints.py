"""What may hold a queue up: each *constraint* says how fast it lets a group of tasks go.

`CONSTRAINTS` is the list of them: a limit on tokens or money is one more function there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidegate.domain.text import counted, format_duration
from tidegate.policy.drain import DrainChannel, DrainLimit, DrainWork, DrainWorker


@dataclass(frozen=True, slots=True)
class Bound:
    """How fast one constraint lets a group of tasks go, in a unit of its own: tasks, or seconds of slots."""

    constraint: str
    channels: Collection[DrainChannel]
    load: float
    """What the tasks need in all."""
    capacity: float
    """What the constraint allows per second."""
    arriving: float
    """What new tasks need per second."""
    per_task: float
    """What one task needs on average."""
    text: str
    extra_seconds: float = 0.0
    """Before the first task may start, or after the last has started."""

    @property
    def seconds(self) -> float:
        """Seconds until the load is through; infinity if as much arrives."""
        left = self.capacity - self.arriving
        if self.load <= 0:
            return 0.0
        return self.load / left + self.extra_seconds if left > 0 else math.inf

    @property
    def short_per_minute(self) -> float:
        """How many tasks a minute arrive that it does not let through."""
        return 60.0 * (self.arriving - self.capacity) / self.per_task


Constraint = Callable[[DrainWork, Sequence[DrainChannel], str], Iterable[Bound]]
"""Takes the work, the channels that are at least as urgent as those of a queue, and the queue. Returns how
fast the constraint lets them go; nothing if it does not apply or too little is known."""


def slots_of_workers(work: DrainWork, ahead: Sequence[DrainChannel], queue: str) -> Iterator[Bound]:
    """Bound by the slots of the workers that serve the queue, and of all that share work with them."""
    serving = [worker for worker in work.workers if worker.serves(queue)]
    own = [channel for channel in ahead if channel.queue == queue]
    if not serving:
        return
    yield from _slots(own, sum(worker.slots for worker in serving), f"for {queue}")
    queues, workers = _connected(work, ahead, queue)
    if len(queues) > 1:
        shared = [channel for channel in ahead if channel.queue in queues]
        slots = sum(worker.slots for worker in workers)
        yield from _slots(shared, slots, f"for {queue} and {counted(len(queues) - 1, 'other queue')}")


def _slots(channels: Sequence[DrainChannel], slots: int, which: str) -> Iterator[Bound]:
    tasks = sum(channel.runnable for channel in channels)
    if slots <= 0 or any(channel.runnable and channel.run_seconds is None for channel in channels):
        return
    load = sum(channel.work for channel in channels)
    mean = sum(channel.runnable * channel.slot_seconds for channel in channels) / max(1, tasks)
    last_round = (math.ceil(tasks / slots) - tasks / slots) * mean
    text = f"{counted(slots, 'slot')} {which}, a task takes {format_duration(mean)}"
    arriving = sum(channel.arrivals * channel.slot_seconds for channel in channels)
    yield Bound("slots", channels, load, slots, arriving, max(mean, 1e-9), text, last_round)


def _connected(
    work: DrainWork, channels: Sequence[DrainChannel], queue: str
) -> tuple[set[str], list[DrainWorker]]:
    """Return the queues that share workers with a queue, directly or through others, and these workers."""
    names = {channel.queue for channel in channels if channel.runnable or channel.arrivals} | {queue}
    found, workers = {queue}, list[DrainWorker]()
    rest = list(work.workers)
    while joined := [worker for worker in rest if any(worker.serves(name) for name in found)]:
        rest = [worker for worker in rest if worker not in joined]
        workers += joined
        found |= {name for name in names if any(worker.serves(name) for worker in joined)}
    return found, workers


def rate_of_limits(work: DrainWork, ahead: Sequence[DrainChannel], queue: str) -> Iterator[Bound]:
    """Bound by the requests that the upstreams and functions of the queue allow."""
    for limit, covered in _limits_of(work, ahead, queue):
        rate = limit.starts_per_second
        if rate is None:
            continue
        tasks = sum(channel.runnable for channel in covered)
        calls = sum(channel.runnable * channel.runs_per_task for channel in covered)
        arriving = sum(channel.arrivals * channel.runs_per_task for channel in covered)
        until_last = limit.start_seconds(math.ceil(calls)) if limit.start_seconds else calls / rate
        last_run = max((channel.run_seconds or 0.0 for channel in covered if channel.runnable), default=0.0)
        text = f"{limit.name} lets {per_minute(rate)} start"
        yield Bound(
            "requests",
            covered,
            until_last * rate,
            rate,
            arriving,
            calls / max(1, tasks) or 1.0,
            text,
            last_run,
        )


def calls_at_once(work: DrainWork, ahead: Sequence[DrainChannel], queue: str) -> Iterator[Bound]:
    """Bound by the calls that the upstreams of the queue allow at once."""
    for limit, covered in _limits_of(work, ahead, queue):
        most = limit.max_at_once
        if most is None:
            continue
        for bound in _slots(covered, most, ""):
            mean = format_duration(bound.per_task)
            text = f"{limit.name} allows {counted(most, 'call')} at once, a task takes {mean}"
            yield Bound(
                "in_flight",
                covered,
                bound.load,
                most,
                bound.arriving,
                bound.per_task,
                text,
                bound.extra_seconds,
            )


def _limits_of(
    work: DrainWork, ahead: Sequence[DrainChannel], queue: str
) -> Iterator[tuple[DrainLimit, list[DrainChannel]]]:
    """Yield the limits that tasks of a queue must pass, with all channels ahead that must pass them."""
    for limit in work.limits:
        covered = [channel for channel in ahead if limit.covers(channel)]
        if any(channel.queue == queue and channel.runnable for channel in covered):
            yield limit, covered


CONSTRAINTS: tuple[Constraint, ...] = (slots_of_workers, rate_of_limits, calls_at_once)
"""Every constraint. Each is one function; a later limit is one more entry."""


def per_minute(rate: float) -> str:
    """Return a rate per second as text."""
    return f"{60.0 * rate:.3g} per minute"
