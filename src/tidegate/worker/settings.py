"""The settings of a worker: its pools and its timings. The values are checked when they are created."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.domain.readers import (
    Seconds,
    Size,
    choice_option,
    concurrency_option,
    devices_option,
    flag_option,
    name_option,
    names_option,
    number_option,
    positive_option,
    seconds_option,
    set_fields,
    shown,
    size_option,
    texts_option,
    whole_option,
    wrong,
)
from tidegate.domain.spec import Priority
from tidegate.errors import OptionError
from tidegate.policy.order import DEFAULT_SHARES

DRAIN_GRACE_SECONDS = 25.0
"""The default upper limit of `drain_grace`. Kubernetes kills after 30 s (`terminationGracePeriodSeconds`),
systemd after 90 s (`TimeoutStopSec`)."""
AUTO_SLOTS = 8
"""With `concurrency="auto"`: the slots of each kind of function when a process starts."""
MOST_AUTO_SLOTS = 200
"""With `concurrency="auto"`: the most slots of `async def` functions with an upstream in a process."""
EVENT_LOOPS = ("auto", "asyncio", "uvloop")
SHARING = (Priority.NORMAL, Priority.BULK)
"""The priorities that have a share of the claims. The rest goes to higher priorities."""


@dataclass(frozen=True, slots=True, init=False)
class Pool:
    """Processes that serve some queues, with their own concurrency and poll interval.

    Durations and sizes are written as in `tidegate.toml`: `poll_interval="1s"`, `memory_limit="2GiB"`.

    Raises:
        OptionError: A value is not allowed.
    """

    name: str
    queues: tuple[str, ...]
    """The queues to serve; `*` serves every queue. With `strict`, queues come first in the listed order."""
    concurrency: int | Literal["auto"]
    """How many tasks each process runs at once. With `"auto"`: 8, and 8 more of `async def` functions with an
    upstream; these grow up to 200 while all of them wait for answers and the upstream's limits admit more."""
    processes: int
    """How many processes the pool has."""
    poll_interval: float
    """Seconds between polls for work when no notification comes; 0.005 to 3600."""
    memory_limit: int | None
    """Bytes, or text such as `2GiB`, that each process may use together with the processes it started. The
    limit applies separately to the pool process with its `async def` tasks and to each child process. A
    process above the limit is killed, and the crash is recorded with the memory it used."""
    memory_soft_limit: int | None
    """A process that uses more bytes than this is replaced after its current tasks. The soft limit must be
    less than `memory_limit`."""
    gpus: tuple[int | str, ...]
    """Devices by number or UUID, such as `[0, 1]`, assigned in turn: each child process sees one, by
    `CUDA_VISIBLE_DEVICES`."""
    vram_limit: int | None
    """A child process that uses more GPU memory than this, in bytes or as text such as `20GiB`, is replaced
    after its current task. Needs `tidegate[gpu]`."""
    child_runs: int
    """Tasks a child process runs before it is replaced, so that small leaks stay small."""
    fatal_errors: tuple[str, ...]
    """Words. After an error whose class or message contains one, its child process is replaced; `[]` for
    never."""
    overlap: bool
    """On a reload, whether a new process starts before the old one ends, so that no slot is lost meanwhile.
    Both processes must fit into memory. If `overlap` is off, the old process ends first."""
    event_loop: str
    """The event loop of the pool's processes: `uvloop` (needs `tidegate[uvloop]`), `asyncio`, or `auto` for
    uvloop if it is installed."""
    strict: bool
    """Whether, within each priority, a queue is served only if the queues before it have nothing ready.
    Without `strict`, tasks are taken by rank from all queues."""
    shares: Mapping[Priority, float]
    """The share of the claims reserved for each lower priority while it has work, 0.9 in all at most. A
    priority that is not named keeps its default."""

    def __init__(
        self,
        name: str = "default",
        queues: Sequence[str] = ("*",),
        concurrency: int | Literal["auto"] = "auto",
        processes: int = 1,
        poll_interval: Seconds = 0.5,
        memory_limit: Size | None = None,
        memory_soft_limit: Size | None = None,
        gpus: Sequence[int | str] = (),
        vram_limit: Size | None = None,
        child_runs: int = 1_000,
        fatal_errors: Sequence[str] = ("CUDA error", "CUDA out of memory", "cudaError"),
        strict: bool = False,
        overlap: bool = False,
        event_loop: str = "auto",
        shares: Mapping[Priority | str, float] | Mapping[Priority, float] | Mapping[str, float] | None = None,
    ) -> None:
        pool = f"pool {name_option('pool name', name)}: "
        set_fields(
            self,
            name=name,
            queues=names_option(f"{pool}queues", queues),
            concurrency=concurrency_option(f"{pool}concurrency", concurrency),
            processes=whole_option(f"{pool}processes", processes, most=10_000),
            poll_interval=seconds_option(f"{pool}poll_interval", poll_interval, least=0.005, most=3600.0),
            memory_limit=_size(f"{pool}memory_limit", memory_limit),
            memory_soft_limit=_size(f"{pool}memory_soft_limit", memory_soft_limit),
            gpus=devices_option(f"{pool}gpus", gpus),
            vram_limit=_size(f"{pool}vram_limit", vram_limit),
            child_runs=whole_option(f"{pool}child_runs", child_runs),
            fatal_errors=texts_option(f"{pool}fatal_errors", fatal_errors),
            overlap=flag_option(f"{pool}overlap", overlap),
            event_loop=choice_option(f"{pool}event_loop", event_loop, EVENT_LOOPS),
            strict=flag_option(f"{pool}strict", strict),
            shares=shares_option(f"{pool}shares", shares or {}),
        )
        if (
            self.memory_limit is not None
            and self.memory_soft_limit is not None
            and self.memory_soft_limit >= self.memory_limit
        ):
            fix = "use less than memory_limit"
            raise wrong(f"{pool}memory_soft_limit", memory_soft_limit, fix)

    @property
    def slots(self) -> int:
        """How many tasks each process runs at once when it starts."""
        return AUTO_SLOTS if self.concurrency == "auto" else self.concurrency

    @property
    def most_slots(self) -> int:
        """How many tasks each process may run at once in the end."""
        return MOST_AUTO_SLOTS if self.concurrency == "auto" else self.concurrency


def pools_option(pools: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the pools of an application as a tuple.

    Raises:
        OptionError: `pools` is not a list of pools, or two pools share a name.
    """
    if not isinstance(pools, Sequence) or not pools or not all(isinstance(pool, Pool) for pool in pools):
        raise wrong("pools", pools, 'write a list: pools=[Pool("default")]')
    names = [pool.name for pool in pools]
    if len(set(names)) < len(names):
        raise wrong("pools", names, "give each pool its own name")
    return tuple(pools)


def shares_option(option: str, value: Mapping[Any, float]) -> dict[Priority, float]:
    """Return the shares of the claims by priority. A priority that is not named keeps its default.

    Raises:
        OptionError: A priority cannot have a share, or a number is not allowed.
    """
    if not isinstance(value, Mapping):
        raise wrong(option, value, 'name them by priority: {"normal": 0.1, "bulk": 0.1}')
    shares = dict(DEFAULT_SHARES)
    for key, share in value.items():
        word = key.word if isinstance(key, Priority) else key
        priority = next((priority for priority in SHARING if priority.word == word), None)
        if priority is None:
            fix = f"use {' and '.join(priority.word for priority in SHARING)}"
            raise OptionError(
                f"{option}: {shown(word)}: only lower priorities can have a share",
                fix=fix,
                option="shares",
                value=word,
            )
        shares[priority] = number_option(f"{option}: {word}", share, least=0.0, most=0.9)
    if sum(shares.values()) > 0.9:
        raise wrong(
            option, {key.word: share for key, share in shares.items()}, "let them add up to 0.9 at most"
        )
    return shares


def _size(option: str, value: Size | None) -> int | None:
    return None if value is None else size_option(option, value)


@dataclass(frozen=True, slots=True, init=False)
class Timings:
    """The intervals and limits of a worker, in seconds; written as in `tidegate.toml`: `lease="1m"`.

    Raises:
        OptionError: A value is not allowed.
    """

    lease: float
    """How long a worker counts as alive after its last heartbeat."""
    beat: float
    """Time between heartbeats, at most half the lease. Default: a third of the lease, at most 10 s."""
    reap: float
    """Time between checks for workers whose lease ran out."""
    promote: float
    """Time between checks for due tasks and for due ticks of schedules."""
    promote_batch: int
    """Due tasks made ready in one transaction."""
    stop_grace: float
    """How long a function that was asked to stop may go on before its run is closed while it still runs."""
    drain_grace: float | None
    """How long running tasks may continue after SIGTERM. Default: the longest timeout of the pool's tasks, at
    most 25 s. To let longer calls finish, raise it together with the grace period of your platform."""
    stall_limit: float
    """A pool process that does not answer for this long is killed."""
    cancel_poll: float
    """Time between checks for cancel requests of running tasks."""

    def __init__(
        self,
        lease: Seconds = 30.0,
        beat: Seconds | None = None,
        reap: Seconds = 5.0,
        promote: Seconds = 1.0,
        promote_batch: int = 500,
        stop_grace: Seconds = 5.0,
        drain_grace: Seconds | None = None,
        stall_limit: Seconds = 60.0,
        cancel_poll: Seconds = 0.5,
    ) -> None:
        leased = positive_option("lease", lease)
        set_fields(
            self,
            lease=leased,
            beat=min(10.0, leased / 3) if beat is None else positive_option("beat", beat),
            reap=positive_option("reap", reap),
            promote=positive_option("promote", promote),
            promote_batch=whole_option("promote_batch", promote_batch),
            stop_grace=positive_option("stop_grace", stop_grace),
            drain_grace=None if drain_grace is None else seconds_option("drain_grace", drain_grace),
            stall_limit=positive_option("stall_limit", stall_limit),
            cancel_poll=positive_option("cancel_poll", cancel_poll),
        )
        if self.beat * 2 > self.lease:
            fix = f"use half the lease ({self.lease:g} s) or less, so that one late heartbeat does no harm"
            raise wrong("beat", self.beat, fix)


def timings_option(timings: Timings) -> Timings:
    """Return the timings of an application.

    Raises:
        OptionError: The value is not a `Timings`.
    """
    if not isinstance(timings, Timings):
        raise wrong("timings", timings, 'give a Timings: timings=Timings(lease="1m")')
    return timings


def drain_grace(timings: Timings, timeouts: Iterable[float]) -> float:
    """Return how long a drain waits for running tasks: as set, else the longest timeout up to 25 s."""
    if timings.drain_grace is not None:
        return timings.drain_grace
    return min(DRAIN_GRACE_SECONDS, max(timeouts, default=0.0))
