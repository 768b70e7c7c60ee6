"""Decides how many workers a pool should have, from its work, its run times and its upstreams' limits.

Workers beyond what an upstream allows would only wait. So such a limit bounds the answer, and the answer
names it. Work that no worker could start, because it is paused or its upstream is closed, never counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DEFAULT_TARGET_SECONDS = 60.0
"""The backlog should be done within this time."""
DEFAULT_BACKLOG_PER_WORKER = 100
"""Tasks per worker while no run time is known."""
_UNKNOWN_RUN_SECONDS = 1.0
"""How long a run is assumed to take for a rate limit while no run has ended."""


@dataclass(frozen=True, slots=True)
class SlotLimit:
    """A limit that several groups of tasks may share."""

    name: str
    """For people: `upstream openai`, `rate limit of app:resize`."""
    starts_per_second: float | None = None
    """How many tasks may start per second; None for any number."""
    max_at_once: int | None = None
    """How many tasks may run at the same time; None for any number."""


@dataclass(frozen=True, slots=True)
class WorkGroup:
    """The tasks of one function and upstream."""

    runnable: int = 0
    """Tasks that may start now or at the pace of their limits, and those that are due."""
    running: int = 0
    run_seconds: float | None = None
    """How long a run took recently, on average; None if no run ended."""
    slots_grow: bool = False
    """Whether the slots of its function grow (`concurrency="auto"`)."""
    limits: tuple[SlotLimit, ...] = ()
    is_own: bool = True
    """False if another pool runs the tasks. Such tasks only use part of the limits."""


@dataclass(frozen=True, slots=True)
class PoolScaling:
    """How a pool may be scaled."""

    slots_per_worker: int = 8
    """Tasks that one worker runs at once: the processes of the pool times their concurrency."""
    growing_slots_per_worker: int | None = None
    """How many tasks one worker may also run of functions whose slots grow; None if its slots do not grow."""
    min_workers: int = 0
    max_workers: int | None = None
    """None for any number."""
    target_seconds: float = DEFAULT_TARGET_SECONDS
    """The backlog should be done within this time."""
    backlog_per_worker: int | None = None
    """If set, each worker is to have this many tasks, however long they run. None: compute it from the run
    time."""


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """How many workers a pool should have, and why."""

    workers: int
    slots: int
    """Slots that the work can use, before they are rounded to workers and bounded."""
    runnable: int
    running: int
    bound: str
    """What bounds the number: the name of a limit, or `max_workers`; empty if nothing does."""
    reason: str
    """The explanation, in one sentence."""


def desired_workers(groups: Iterable[WorkGroup], scaling: PoolScaling) -> ScalingDecision:
    """Return how many workers a pool should have.

    Each group gets slots to finish its tasks within `target_seconds`, but no more than its limits allow, and
    no fewer than it uses now. So the number falls only as tasks end.
    """
    every = list(groups)
    use = _LimitUse(every)
    slots, growing, missing = 0, 0, 0
    bound = ""
    for group in (group for group in every if group.is_own):
        wanted = _wanted_slots(group, scaling)
        given, limit = use.take(group, wanted)
        slots += given
        growing += given if group.slots_grow and not _counts_backlog(group, scaling) else 0
        if wanted - given > missing:
            missing, bound = wanted - given, limit
    workers = _workers(slots, growing, scaling)
    if scaling.max_workers is not None and workers > scaling.max_workers:
        workers, bound = scaling.max_workers, "max_workers"
    workers = max(scaling.min_workers, workers)
    runnable = sum(group.runnable for group in every if group.is_own)
    running = sum(group.running for group in every if group.is_own)
    return ScalingDecision(
        workers, slots, runnable, running, bound, _reason(slots, runnable, running, bound, scaling)
    )


def _workers(slots: int, growing: int, scaling: PoolScaling) -> int:
    """Return how many workers have these slots, of which some are for functions whose slots grow."""
    if scaling.growing_slots_per_worker is None:
        return math.ceil(slots / scaling.slots_per_worker)
    return max(
        math.ceil(growing / scaling.growing_slots_per_worker),
        math.ceil((slots - growing) / scaling.slots_per_worker),
    )


def _counts_backlog(group: WorkGroup, scaling: PoolScaling) -> bool:
    """Whether each worker is to have a number of tasks, however long they run."""
    return scaling.backlog_per_worker is not None or group.run_seconds is None


def _wanted_slots(group: WorkGroup, scaling: PoolScaling) -> int:
    """Return the slots that would finish the work in time if there were no limits."""
    work = group.runnable + group.running
    if _counts_backlog(group, scaling) or group.run_seconds is None:
        per_worker = scaling.backlog_per_worker or DEFAULT_BACKLOG_PER_WORKER
        wanted = math.ceil(work / per_worker) * scaling.slots_per_worker
    else:
        wanted = math.ceil(work * group.run_seconds / scaling.target_seconds)
    return min(work, max(group.running, 1, wanted))


class _LimitUse:
    """How much of each limit is left, while slots are given to one group after the other."""

    def __init__(self, groups: Sequence[WorkGroup]) -> None:
        self._starts: dict[str, float] = {}
        self._at_once: dict[str, float] = {}
        for limit in {limit for group in groups for limit in group.limits}:
            self._starts[limit.name] = (
                math.inf if limit.starts_per_second is None else limit.starts_per_second
            )
            self._at_once[limit.name] = math.inf if limit.max_at_once is None else limit.max_at_once
        for group in groups:
            self._charge(group, group.running)

    def take(self, group: WorkGroup, wanted: int) -> tuple[int, str]:
        """Return the slots that a group gets, and the limit that decides.

        The running tasks of the group keep their slots.
        """
        more = wanted - group.running
        free, name = min(
            ((self._free(limit, group), limit.name) for limit in group.limits), default=(math.inf, "")
        )
        if free < more:
            more = max(0, math.ceil(free - 1e-9))
        self._charge(group, more)
        return group.running + more, name

    def _free(self, limit: SlotLimit, group: WorkGroup) -> float:
        """Return how many more slots the limit can keep busy."""
        by_rate = self._starts[limit.name] * _run_seconds(group)
        return min(by_rate, self._at_once[limit.name])

    def _charge(self, group: WorkGroup, slots: int) -> None:
        for limit in group.limits:
            self._starts[limit.name] -= slots / _run_seconds(group)
            self._at_once[limit.name] -= slots


def _run_seconds(group: WorkGroup) -> float:
    return max(1e-3, _UNKNOWN_RUN_SECONDS if group.run_seconds is None else group.run_seconds)


def _reason(slots: int, runnable: int, running: int, bound: str, scaling: PoolScaling) -> str:
    work = f"{runnable} runnable and {running} running tasks can use {slots} slots"
    if bound == "max_workers":
        return f"{work}; max_workers is {scaling.max_workers}"
    if bound:
        return f"{work}: more would only wait for the {bound}"
    if slots < scaling.min_workers * scaling.slots_per_worker:
        return f"{work}; min_workers is {scaling.min_workers}"
    return work
