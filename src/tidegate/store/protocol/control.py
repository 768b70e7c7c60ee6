"""The part of the store contract for orders of people to queues, functions and workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.limits.pauses import Pause, PauseKind
from tidegate.store.controls import ControlKind, ControlReport, ControlRow


class Control(Protocol):
    """Pauses and orders to workers. Claims read the pauses; workers read their orders once a second."""

    async def pause(self, kind: PauseKind, name: str, *, by: str, why: str) -> bool:
        """Stop claims of a queue's or function's tasks in every process; return False if already paused.

        No task changes its state. A second pause changes nothing: the moment, person and reason of the first
        are kept. A queue or function of any name can be paused, even before it has tasks.
        """

    async def resume(self, kind: PauseKind, name: str) -> bool:
        """End a pause; return whether there was one. Safe to repeat."""

    async def list_pauses(self) -> list[Pause]:
        """Return every pause: first those of queues, then those of functions, each ordered by name."""

    async def set_control(self, kind: ControlKind, name: str, value: int | None, *, by: str, why: str) -> int:
        """Store an order to workers; return the version of its row. Each call makes a new version."""

    async def list_controls(self) -> list[ControlRow]:
        """Return all orders to workers, ordered by kind and name."""

    async def report_controls(self, reports: Sequence[ControlReport]) -> None:
        """Store which orders workers have applied.

        Safe to repeat; a report on an older version changes nothing.
        """

    async def list_control_reports(self, kind: ControlKind, name: str) -> list[ControlReport]:
        """Return the reports on one order, ordered by reporter."""

    async def set_worker_slots(self, worker_id: str, slots: int) -> None:
        """Record how many tasks a pool process runs at once now. An unknown worker is ignored."""

    async def set_worker_code(self, worker_id: str, code: str) -> None:
        """Record which version of the code a worker process has loaded. An unknown worker is ignored."""
