"""Pauses: a person stops a queue or a task function, until somebody resumes it. Plain values.

Paused tasks keep their state. A claim leaves the tasks of a paused queue or function in the main queue,
where they keep their place. Runs that have begun go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tidegate.domain.text import format_duration


class PauseKind(StrEnum):
    """What a person can pause."""

    QUEUE = "queue"
    FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class Pause:
    """One queue or function that is paused."""

    kind: PauseKind
    name: str
    paused_at: float
    paused_by: str
    """Who paused it, as recorded."""
    why: str = ""

    def describe(self, now: float) -> str:
        """Return a text for people: since when it is paused, by whom and why."""
        since = format_duration(max(0.0, now - self.paused_at))
        why = f" ({self.why})" if self.why else ""
        return (
            f"paused {since} ago by {self.paused_by}{why}; `tidegate {self.kind}s resume {self.name}` ends it"
        )


class Pauses:
    """The pauses of a store at one moment.

    Args:
        pauses: All pauses.
    """

    def __init__(self, pauses: Iterable[Pause] = ()) -> None:
        self._queues: dict[str, Pause] = {}
        self._functions: dict[str, Pause] = {}
        for pause in pauses:
            self._of_kind(pause.kind)[pause.name] = pause

    def __bool__(self) -> bool:
        return bool(self._queues or self._functions)

    def of(self, queue: str, function: str) -> Pause | None:
        """Return the pause that stops such a task; None if no pause does."""
        return self._queues.get(queue) or self._functions.get(function)

    def of_queue(self, queue: str) -> Pause | None:
        """Return the pause of a queue; None if it is not paused."""
        return self._queues.get(queue)

    def of_function(self, function: str) -> Pause | None:
        """Return the pause of a function; None if it is not paused."""
        return self._functions.get(function)

    @property
    def queues(self) -> list[str]:
        """The paused queues."""
        return list(self._queues)

    @property
    def functions(self) -> list[str]:
        """The paused functions."""
        return list(self._functions)

    def _of_kind(self, kind: PauseKind) -> dict[str, Pause]:
        return self._queues if kind is PauseKind.QUEUE else self._functions


NO_PAUSES = Pauses()
