"""The plan of one simulated run: its seed, its size and its faults, and the setup that the seed gives."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from harness import faults
from harness.faults import Effect
from harness.record import Bounds, orphan_bound
from harness.scripts import SWALLOW_LEASES
from tidegate.worker.settings import Pool, Timings


class FaultKind(faults.FaultKind):
    """What can go wrong in a run."""

    CRASH = "crash", Effect.ENDS_WORKER
    """A machine stops for good between two steps; another takes its place after a while."""
    PAUSE = "pause", Effect.FREEZES
    """A machine freezes, mostly for longer than its lease, and goes on where it was."""
    CUT_OFF = "cut_off", Effect.STORE_FAILS
    """One machine cannot reach the store."""
    OUTAGE = "outage", Effect.STORE_FAILS | Effect.HITS_ALL_ALIKE
    """No machine can reach the store, often for more than two leases."""
    LOCKED = "locked", Effect.STORE_FAILS | Effect.HITS_ALL_ALIKE
    """Another program holds the write lock of the store: reads succeed, writes do not."""
    ERRORS = "errors", Effect.STORE_FAILS
    """Transactions fail: the lock is busy, the disk is full, the disk fails. Nothing is written."""
    LOST_ANSWERS = "lost_answers", Effect.STORE_FAILS
    """A call is done and committed, but its caller hears that the store cannot be reached."""
    CLOCK = "clock", Effect.STEPS_CLOCK | Effect.HITS_ALL_ALIKE
    """The host's wall clock steps by minutes, forwards or back; the store's clock never goes back."""
    SET_BACK = "set_back"
    """With `clock`: each process has its own store clock, as in production. A process that starts after a step
    back has earlier times than the processes before it, so invariants about time do not hold between them.
    Not among the usual faults, in which each host has one clock that never goes back."""
    DRAIN = "drain", Effect.ASKS_TO_STOP
    """A worker is asked to stop, with or without a grace time, and restarts."""
    BROKEN = "broken"
    """Options, retry rules, classifiers, codecs and answers of the store raise or take long, at random."""


class CallFaultKind(faults.FaultKind):
    """Faults of single calls. They belong to kinds above, or to the noise between them."""

    FAILED = "failed call", Effect.CALL_FAILS


_ON_THEIR_WAY = 10
"""Tasks that clients may still send when the faults stop."""
_JOB_PAUSE_SECONDS = 5.5
"""The longest time that a maintenance job waits after a failed round."""
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
    """The setup that the seed of a plan gives."""

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
    """Whether a worker that lost its lease restarts by itself; otherwise its process ends and a new one starts."""
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
        return self.workers * self.pool.slots

    @property
    def longest_timeout(self) -> float:
        """The longest time limit that clients give an attempt, in seconds."""
        return 5.0 * self.lease

    @property
    def longest_wait(self) -> float:
        """The longest wait of a task, in seconds: by delay, park, backoff or its own request."""
        return 3.0 * self.lease + 10.0

    @property
    def orphan_bound(self) -> float:
        """Seconds after a crash within which an unhindered reaper must have decided the runs of the dead machine."""
        return orphan_bound(self.timings)

    @property
    def fault_free_orphan_bound(self) -> float:
        """The same after all faults have stopped: the reaper's patience restarts, after a pause of its job."""
        return self.orphan_bound + self.lease + max(5.0, self.timings.reap)

    @property
    def cancel_bound(self) -> float:
        """Seconds after the request of a cancel within which a function must have stopped."""
        return self.timings.cancel_poll + SWALLOW_LEASES * self.lease + 3.0

    def bounds(self, open_tasks: int) -> Bounds:
        """Return all bounds, with this many open tasks at the end of the faults."""
        final = self.final_bound(open_tasks)
        return Bounds(
            lease=self.lease,
            reap=self.timings.reap,
            orphan=self.orphan_bound,
            final=final,
            stop=final,
            cancel=self.cancel_bound,
            job_pause=max(_JOB_PAUSE_SECONDS, 3 * self.timings.reap),
        )

    def final_bound(self, open_tasks: int) -> float:
        """Return the seconds after the last fault within which all tasks must be final.

        This many were open then, and clients may still send some. Orphans are found first. Then each task may take eight more runs, each up to the longest time
        limit and with the longest wait before it; all tasks share the slots.
        """
        runs = 8 * (1 + (open_tasks + _ON_THEIR_WAY) // self.slots)
        one = self.longest_timeout + self.timings.stop_grace
        return self.fault_free_orphan_bound + 8 * self.longest_wait + runs * one


def make_setup(plan: SimulationPlan, rng: random.Random) -> SimulationSetup:
    """Return the setup that the seed of a plan gives.

    Each run leaves out some kinds of faults, since all of them together can hide a bug.
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
