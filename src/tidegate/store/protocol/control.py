"""The part of the store contract for what people want of queues, functions and workers."""

from __future__ import annotations

from typing import Protocol

from tidegate.limits.pauses import Pause, PauseKind


class Control(Protocol):
    """Pauses, which every claim reads."""

    async def pause(self, kind: PauseKind, name: str, *, by: str, why: str) -> bool:
        """Stop claims of a queue's or function's tasks, in every process; return whether it was not paused.

        No task moves. A second pause changes nothing: the first one's moment, person and reason are kept.
        A queue or function of any name can be paused, also before it has tasks.
        """

    async def resume(self, kind: PauseKind, name: str) -> bool:
        """End a pause; return whether there was one. Safe to repeat."""

    async def list_pauses(self) -> list[Pause]:
        """Return every pause: those of queues first, each kind by name."""
