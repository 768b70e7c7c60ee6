"""When will the backlog be gone? By the rate of its limits where it has some, else by its completions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate.domain.durations import format_duration

_MINUTE_SECONDS = 60.0


class DrainKind(StrEnum):
    """How sure the estimate is."""

    SECONDS = "seconds"
    UNKNOWN = "unknown"
    """No task of this queue has ever finished: nothing to reckon with."""
    NEVER = "never"
    """Tasks wait, and none finished in the last ten minutes."""


@dataclass(frozen=True, slots=True)
class Drain:
    """An estimate of the time until a queue is empty."""

    kind: DrainKind
    seconds: float | None = None
    """Set for `seconds` only."""

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

    Tasks under a rate limit take as long as their limits say. The others take as long as the completions of
    the last minute or of the last ten minutes say, whichever went faster: a queue that was idle or blocked
    before would else seem slow.

    Args:
        depth: Runnable and paced tasks now; blocked and waiting ones left out.
        done: Tasks that reached a final state within `history_seconds`.
        history_seconds: The span looked at: ten minutes, or less for a young queue; 0 for none.
        done_last_minute: Of `done`, those of the last 60 seconds.
        limited: Of `depth`, the tasks under a rate limit.
        limited_seconds: Until the last of these may start.
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
