"""What one simulated run is: a seed, its size, the faults it may meet, and what the seed makes of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidegate.worker.settings import Pool, Timings


class FaultKind(StrEnum):
    """What can go wrong in a run."""

    CRASH = "crash"
    """A machine stops for good between two steps; another takes its place after a while."""
    PAUSE = "pause"
    """A machine stands still, mostly for longer than its lease, and goes on where it was."""
    CUT_OFF = "cut_off"
    """The store is away for one machine."""
    OUTAGE = "outage"
    """The store is away for all, often for more than two leases."""
    LOCKED = "locked"
    """Someone holds the write lock of the store: who reads is answered, who writes is not."""
    ERRORS = "errors"
    """Transactions fail: the lock is busy, the disk is full, the disk fails. Nothing is written."""
    LOST_ANSWERS = "lost_answers"
    """A call is done and committed, but its caller hears that the store cannot be reached."""
    CLOCK = "clock"
    """The host's wall clock steps by minutes, forwards or back; the store's clock never goes back."""
    SET_BACK = "set_back"
    """With `clock`: each process has a store clock of its own, as it has in production. One that starts
    after a step back tells earlier times than those that ran before, and invariants about time do not hold
    between them. Not among the usual faults, in which the host has one clock that never goes back."""
    DRAIN = "drain"
    """A worker is told to stop, with or without grace, and starts anew."""
    BROKEN = "broken"
    """Options, retry rules, classifiers, codecs and answers of the store raise or take long, at random."""


USUAL_FAULTS = frozenset(FaultKind) - {FaultKind.SET_BACK}


_KIND_CHANCE = 0.75
"""Chance of each kind of fault to be part of a run."""


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """One run, whole: the same plan gives the same history, on any machine."""

    seed: int
    tasks: int = 40
    """Tasks that clients enqueue, about."""
    leases: float = 16.0
    """How long clients and faults go on, in leases; then the faults stop and everything must end."""
    faults: frozenset[FaultKind] = field(default=USUAL_FAULTS)
    """What may happen; the seed leaves some out."""

    def command(self) -> str:
        """Return the command that repeats this run."""
        usual = SimulationPlan(self.seed)
        words = [f"PYTHONPATH=tests python -m simulation --seed {self.seed}"]
        if self.tasks != usual.tasks:
            words.append(f"--tasks {self.tasks}")
        if self.leases != usual.leases:
            words.append(f"--leases {self.leases:g}")
        if self.faults != usual.faults:
            words.append(f"--faults {','.join(sorted(self.faults)) or 'none'}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class SimulationSetup:
    """What the seed made of a plan."""

    workers: int
    pool: Pool
    timings: Timings
    faults: frozenset[FaultKind]
    phase_seconds: float
    """How long clients and faults go on."""
    mean_seconds_between_faults: float
    crash_weight: int
    """How much more often than usual machines crash."""
    may_restart: bool
    """Whether a worker that lost its lease begins anew by itself; else its process ends and starts again."""
    background_faults: float
    """Chance of each enabled error in any call, without any storm."""
    broken_code_chance: float
    """Chance that the code of others raises where it is asked."""

    @property
    def lease(self) -> float:
        """Seconds of a lease."""
        return self.timings.lease

    @property
    def slots(self) -> int:
        """Tasks at once on all workers."""
        return self.workers * self.pool.concurrency

    @property
    def longest_timeout(self) -> float:
        """The longest time limit that clients give an attempt, in seconds."""
        return 5.0 * self.lease

    @property
    def longest_wait(self) -> float:
        """The longest that a task is told to wait, in seconds: by delay, park, backoff or itself."""
        return 3.0 * self.lease + 10.0

    @property
    def orphan_bound(self) -> float:
        """Seconds after a crash within which an unhindered reaper must have decided the runs of the dead.

        The last lease must run out. A reaper passes every interval, varied by a tenth; it sees a beat up
        to one pass late, allows three passes more where the clock was set, and takes its last one then.
        """
        return self.lease + 5 * 1.1 * self.timings.reap + 2.0

    @property
    def fault_free_orphan_bound(self) -> float:
        """The same after all faults have stopped: patience begins anew, after a pause of a duty."""
        return self.orphan_bound + self.lease + max(5.0, self.timings.reap)

    def final_bound(self, open_tasks: int) -> float:
        """Return the seconds after the last fault within which so many tasks must all be final.

        Orphans are found first. Then each task may take eight more runs, each up to the longest time
        limit and with the longest wait before it; they share the slots.
        """
        runs = 8 * (1 + open_tasks // self.slots)
        one = self.longest_timeout + self.timings.stop_grace
        return self.fault_free_orphan_bound + 8 * self.longest_wait + runs * one


def make_setup(plan: SimulationPlan, rng: random.Random) -> SimulationSetup:
    """Return what this seed makes of a plan.

    Leaving out some kinds of faults in each run shows what all of them together would hide.
    """
    lease = rng.choice((5.0, 10.0))
    timings = Timings(
        lease=lease,
        beat=lease / 3,
        reap=lease / rng.choice((5, 8)),
        promote=lease / 10,
        stop_grace=lease / 5,
        cancel_poll=lease / rng.choice((10, 3)),
        drain_grace=rng.choice((None, 0.0, lease)),
    )
    pool = Pool(
        name="simulated",
        queues=rng.choice((("*",), ("batch", "default", "realtime"))),
        concurrency=rng.randint(1, 4),
        poll_interval=lease / rng.choice((5, 10)),
        strict=rng.random() < 0.2,
    )
    drawn = [kind for kind in FaultKind if kind is not FaultKind.BROKEN]
    chosen = frozenset(kind for kind in drawn if rng.random() < _KIND_CHANCE) | {FaultKind.SET_BACK}
    setup = SimulationSetup(
        workers=rng.randint(2, 4),
        pool=pool,
        timings=timings,
        faults=plan.faults & chosen,
        phase_seconds=plan.leases * lease,
        mean_seconds_between_faults=lease * rng.choice((0.1, 0.3, 1.0, 4.0)),
        crash_weight=rng.choice((1, 1, 2, 8)),
        may_restart=rng.random() < 0.5,
        background_faults=rng.choice((0.0, 0.005, 0.02)),
        broken_code_chance=0.0,
    )
    # Drawn last, so that plans without it have the history they had before there was such a kind.
    if FaultKind.BROKEN not in plan.faults or rng.random() >= _KIND_CHANCE:
        return setup
    return replace(
        setup, faults=setup.faults | {FaultKind.BROKEN}, broken_code_chance=rng.choice((0.05, 0.2))
    )
