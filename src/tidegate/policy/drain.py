"""The estimate of when the backlog of a queue clears, and the values from which it is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidegate.domain.text import format_duration
from tidegate.policy.live_workers import ANY_QUEUE


class DrainKind(StrEnum):
    """How sure the estimate is."""

    SECONDS = "seconds"
    UNKNOWN = "unknown"
    """No task of this queue has ever finished, so there is nothing to estimate from."""
    NEVER = "never"
    """More tasks arrive than can be finished, or tasks wait and none finished in the last ten minutes."""
    BLOCKED = "blocked"
    """Every task that waits is blocked."""


@dataclass(frozen=True, slots=True)
class Drain:
    """An estimate of the time until the runnable and paced tasks of a queue are done."""

    kind: DrainKind
    seconds: float | None = None
    """The estimate; None unless the kind is `SECONDS`."""
    constraint: str = ""
    """What decides the estimate: `slots`, `requests`, `in_flight`, `completions`, `gate`, `paused` or
    `workers`."""
    text: str = ""
    """The constraint with its numbers, for people."""
    short_per_minute: float | None = None
    """How many more tasks arrive per minute than the constraint lets through, if the queue will never
    drain."""
    left_out: tuple[str, ...] = ()
    """What the estimate leaves out, and why: blocked tasks, and tasks that wait for their moment."""

    def __str__(self) -> str:
        return self.kind.value if self.seconds is None else format_duration(self.seconds)

    def describe(self) -> str:
        """Return the estimate with its constraint, in one sentence."""
        if self.kind is DrainKind.NEVER and self.short_per_minute is not None:
            return f"will not drain, short by {self.short_per_minute:.3g} per minute: {self.text}"
        if self.kind is DrainKind.NEVER:
            return f"will not drain: {self.text}"
        if self.kind is DrainKind.SECONDS:
            return f"drains in {self}" + (f": {self.text}" if self.text else "")
        return f"drain {self.kind.value}" + (f": {self.text}" if self.text else "")


EMPTY = Drain(DrainKind.SECONDS, 0.0)
"""The estimate of a queue without a task."""


@dataclass(frozen=True, slots=True)
class DrainChannel:
    """The tasks of one queue, upstream, function and priority that are not blocked."""

    queue: str
    upstream: str = ""
    function: str = ""
    priority: int = 1
    runnable: int = 0
    """Ready and paced tasks."""
    running: int = 0
    oldest_at: float | None = None
    """When the first of these tasks became ready."""
    run_seconds: float | None = None
    """How long a run took lately, on average; None if no run ended."""
    runs_per_task: float = 1.0
    """Runs until a task is final, on average."""
    arrivals: float = 0.0
    """New tasks per second."""

    @property
    def work(self) -> float:
        """Seconds for which the tasks of the group keep a slot busy.

        For running tasks half of the time is assumed to be over.
        """
        return (self.runnable + self.running / 2) * self.slot_seconds

    @property
    def slot_seconds(self) -> float:
        """Seconds for which one task keeps a slot busy, over all its runs."""
        return (self.run_seconds or 0.0) * self.runs_per_task


@dataclass(frozen=True, slots=True)
class DrainLimit:
    """The limits of one gate."""

    name: str
    """For people: `upstream openai`, `rate limit of app:resize`."""
    upstream: str = ""
    function: str = ""
    starts_per_second: float | None = None
    """How many runs may start per second; None for any number."""
    start_seconds: Callable[[int], float] | None = None
    """Takes a number of runs. Returns the seconds until the last of them may start, if no new tasks arrive.
    None means a steady pace that begins now."""
    max_at_once: int | None = None
    """How many runs may be in flight; None for any number."""


@dataclass(frozen=True, slots=True)
class DrainWorker:
    """A live worker."""

    queues: Collection[str]
    slots: int

    def serves(self, queue: str) -> bool:
        """Return whether the process claims tasks of this queue."""
        return ANY_QUEUE in self.queues or queue in self.queues


@dataclass(frozen=True, slots=True)
class DrainWork:
    """The data from which the estimates are made."""

    channels: Sequence[DrainChannel]
    limits: Sequence[DrainLimit] = ()
    workers: Sequence[DrainWorker] = ()
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """What a queue finished lately, and the tasks that the estimate leaves out."""

    done: int = 0
    """Tasks that became final in `seconds`."""
    seconds: float = 0.0
    """The length of the period: ten minutes, or less for a young queue; 0 if no task ever finished."""
    done_last_minute: int = 0
    """How many of `done` became final in the last 60 seconds."""
    left_out: tuple[str, ...] = ()
    blocked_by: str = ""
    """What blocks the most tasks: `gate`, `paused` or `workers`; empty if no task is blocked."""
