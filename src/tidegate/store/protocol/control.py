"""The part of the store contract for what people want of queues, functions and workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.limits.pauses import Pause, PauseKind
from tidegate.store.controls import ControlKind, ControlReport, ControlRow


class Control(Protocol):
    """Pauses, which every claim reads; and what is wanted of workers, which each reads once a second."""

    async def pause(self, kind: PauseKind, name: str, *, by: str, why: str) -> bool:
        """Stop claims of a queue's or function's tasks, in every process; return whether it was not paused.

        No task moves. A second pause changes nothing: the first one's moment, person and reason are kept.
        A queue or function of any name can be paused, also before it has tasks.
        """

    async def resume(self, kind: PauseKind, name: str) -> bool:
        """End a pause; return whether there was one. Safe to repeat."""

    async def list_pauses(self) -> list[Pause]:
        """Return every pause: first of queues, then of functions, each by name."""

    async def set_control(self, kind: ControlKind, name: str, value: int | None, *, by: str, why: str) -> int:
        """Store what is wanted of workers; return the version of the row. Each call makes a new version."""

    async def list_controls(self) -> list[ControlRow]:
        """Return everything that is wanted of workers, by kind and name."""

    async def report_controls(self, reports: Sequence[ControlReport]) -> None:
        """Store what workers have applied. Safe to repeat; a report of an older version changes nothing."""

    async def list_control_reports(self, kind: ControlKind, name: str) -> list[ControlReport]:
        """Return the reports on one row, by reporter."""

    async def set_worker_slots(self, worker_id: str, slots: int) -> None:
        """Record how many tasks a pool process runs at once now. An unknown worker is ignored."""

    async def set_worker_code(self, worker_id: str, code: str) -> None:
        """Record which version of the code a worker process has loaded. An unknown worker is ignored."""
