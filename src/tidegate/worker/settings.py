"""What a worker is told: its pools and its clocks. Plain values, checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.domain.spec import Priority
from tidegate.errors import ConfigError
from tidegate.policy.order import DEFAULT_SHARES


@dataclass(frozen=True, slots=True)
class Pool:
    """Processes that serve some queues, with their own concurrency and poll interval."""

    name: str = "default"
    queues: tuple[str, ...] = ("*",)
    """In listed order, which counts with `strict`; `*` serves every queue."""
    concurrency: int = 8
    """Tasks at once in each process."""
    processes: int = 1
    poll_interval: float = 0.5
    """Seconds between looks for work when no hint comes."""
    memory_limit: int | None = None
    """Bytes each process may hold with what it started: the pool process with its `async def` tasks, and each
    of its child processes for itself. Beyond that it is killed and the crash recorded with the figure."""
    memory_soft_limit: int | None = None
    """Bytes beyond which such a process is replaced after its present tasks."""
    gpus: tuple[int | str, ...] = ()
    """Devices given out in turn: each child process sees one, by `CUDA_VISIBLE_DEVICES`."""
    vram_limit: int | None = None
    """Bytes of GPU memory beyond which a child process is replaced after its present task; needs
    `tidegate[gpu]`."""
    child_runs: int = 1_000
    """Tasks a child process runs before it is replaced, so that small leaks stay small."""
    fatal_errors: tuple[str, ...] = ("CUDA error", "CUDA out of memory", "cudaError")
    """Words in an error's class or message after which its child process is replaced."""
    strict: bool = False
    """True: inside each priority, a later queue is served only when the earlier ones have nothing ready."""
    shares: Mapping[Priority, float] = field(default_factory=lambda: dict(DEFAULT_SHARES))

    def __post_init__(self) -> None:
        _require(bool(self.name), "pool name", self.name, "give it a name")
        _require(bool(self.queues), f"pool {self.name}: queues", self.queues, 'list some, or "*" for all')
        _require(self.concurrency >= 1, f"pool {self.name}: concurrency", self.concurrency, "use 1 or more")
        _require(self.processes >= 1, f"pool {self.name}: processes", self.processes, "use 1 or more")
        _require(
            0.005 <= self.poll_interval <= 3600,
            f"pool {self.name}: poll_interval",
            self.poll_interval,
            "use 0.005 to 3600 seconds",
        )
        for name in ("memory_limit", "memory_soft_limit", "vram_limit"):
            size = getattr(self, name)
            _require(
                size is None or size > 0,
                f"pool {self.name}: {name}",
                size,
                'use a size such as "2GiB", or leave it out',
            )
        _require(
            None in (self.memory_limit, self.memory_soft_limit)
            or (self.memory_soft_limit or 0) < (self.memory_limit or 0),
            f"pool {self.name}: memory_soft_limit",
            self.memory_soft_limit,
            "use less than memory_limit, which kills",
        )
        _require(self.child_runs >= 1, f"pool {self.name}: child_runs", self.child_runs, "use 1 or more")
        _require(
            all(gpu >= 0 if isinstance(gpu, int) else bool(gpu) for gpu in self.gpus),
            f"pool {self.name}: gpus",
            self.gpus,
            "name each by its number or UUID",
        )
        _require(
            all(self.fatal_errors),
            f"pool {self.name}: fatal_errors",
            self.fatal_errors,
            "leave empty words out: they are in every error",
        )
        total = sum(self.shares.values())
        _require(
            all(share >= 0 for share in self.shares.values()) and total <= 0.9,
            f"pool {self.name}: shares",
            dict(self.shares),
            "use shares ≥ 0 that add up to 0.9 at most",
        )


@dataclass(frozen=True, slots=True)
class Timings:
    """The clocks of a worker, in seconds."""

    lease: float = 30.0
    """How long a worker is believed alive after its last beat."""
    beat: float = 10.0
    reap: float = 5.0
    """Between looks for workers whose lease ran out."""
    promote: float = 1.0
    """Between looks for due tasks."""
    promote_batch: int = 500
    stop_grace: float = 5.0
    """For a body that was told to stop, before its run is closed without it."""
    drain_grace: float | None = None
    """For running tasks after SIGTERM; None: the longest timeout of the pool's functions, at most 300."""
    stall_limit: float = 60.0
    """A pool process that does not answer for so long is killed."""
    cancel_poll: float = 0.5
    """Between looks for cancel requests of running tasks."""
    retention_finished: float = 7 * 86_400.0
    """For succeeded and cancelled tasks; infinity keeps them."""
    retention_dead: float = 90 * 86_400.0
    """For dead letters; infinity keeps them."""

    def __post_init__(self) -> None:
        for name in ("lease", "beat", "reap", "promote", "stop_grace", "stall_limit", "cancel_poll"):
            value = getattr(self, name)
            _require(value > 0 and math.isfinite(value), name, value, "use a number of seconds above 0")
        for name in ("retention_finished", "retention_dead"):
            value = getattr(self, name)
            _require(value >= 0, name, value, "use the time to keep them")
        _require(self.promote_batch >= 1, "promote_batch", self.promote_batch, "use 1 or more")
        _require(
            self.beat * 2 <= self.lease,
            "beat",
            self.beat,
            f"use half the lease ({self.lease:g} s) or less, so that one late beat loses nothing",
        )


def drain_grace(timings: Timings, timeouts: Iterable[float]) -> float:
    """Return how long a drain waits for running tasks: as set, else the longest timeout, at most 300 s."""
    if timings.drain_grace is not None:
        return timings.drain_grace
    return min(300.0, max(timeouts, default=0.0))


def _require(truth: bool, name: str, value: object, fix: str) -> None:
    if not truth:
        raise ConfigError(f"{name} is {value!r}", fix=fix)
