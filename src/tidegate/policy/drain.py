"""Estimates when a queue's backlog clears: from the rate of its limits, or from recent completions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate.domain.text import format_duration

_MINUTE_SECONDS = 60.0


class DrainKind(StrEnum):
    """How sure the estimate is."""

    SECONDS = "seconds"
    UNKNOWN = "unknown"
    """No task of this queue has ever finished, so there is nothing to estimate from."""
    NEVER = "never"
    """Tasks wait, and none finished in the last ten minutes."""


@dataclass(frozen=True, slots=True)
class Drain:
    """An estimate of the time until a queue is empty."""

    kind: DrainKind
    seconds: float | None = None
    """The estimate; None unless the kind is `SECONDS`."""

    def __str__(self) -> str:
        return self.kind.value if self.seconds is None else format_duration(self.seconds)


def drain_estimate(
    *,
    depth: int,
    done: int,
    history_seconds: float,
    done_last_minute: int = 0,
    limited: int = 0,
    limited_seconds: float = 0.0,
) -> Drain:
    """Return the estimate for a queue.

    For tasks under a rate limit the estimate follows from their limits. For other tasks it follows from the
    rate of completions, in the last minute or the last ten minutes, whichever is higher: otherwise a queue
    that was idle or blocked before would seem slow.

    Args:
        depth: The number of runnable and paced tasks, without blocked and waiting ones.
        done: The number of tasks that reached a final state in `history_seconds`.
        history_seconds: The length of the period: ten minutes, or less for a young queue; 0 if there is none.
        done_last_minute: How many of `done` finished in the last 60 seconds.
        limited: How many of `depth` are under a rate limit.
        limited_seconds: Seconds until the last of these may start.
    """
    rest = depth - limited
    if rest <= 0:
        return Drain(DrainKind.SECONDS, limited_seconds)
    if history_seconds <= 0:
        return Drain(DrainKind.UNKNOWN)
    if done == 0:
        return Drain(DrainKind.NEVER)
    rate = max(done / history_seconds, done_last_minute / min(_MINUTE_SECONDS, history_seconds))
    return Drain(DrainKind.SECONDS, max(limited_seconds, rest / rate))
