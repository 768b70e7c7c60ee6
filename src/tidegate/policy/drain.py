"""When will the backlog be gone? Depth divided by the completions of the last ten minutes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate.policy.words import duration


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
        return self.kind.value if self.seconds is None else duration(self.seconds)


def drain_estimate(*, depth: int, done: int, history_seconds: float) -> Drain:
    """Return the estimate for a queue.

    Args:
        depth: Runnable tasks now; blocked and waiting ones left out.
        done: Tasks that reached a final state within `history_seconds`.
        history_seconds: The span looked at: ten minutes, or less for a young queue; 0 for none.
    """
    if depth == 0:
        return Drain(DrainKind.SECONDS, 0.0)
    if history_seconds <= 0:
        return Drain(DrainKind.UNKNOWN)
    if done == 0:
        return Drain(DrainKind.NEVER)
    return Drain(DrainKind.SECONDS, depth * history_seconds / done)
