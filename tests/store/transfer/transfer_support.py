"""Helpers for tests of transfers."""

from __future__ import annotations

from dataclasses import dataclass

from store_build import Build, SettableClock

from tidegate.store.postgres.store import PostgresStore
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.transfer import steps
from tidegate.store.transfer.rows import TransferSummary
from tidegate.store.transfer.source import Source
from tidegate.store.transfer.target import Target


@dataclass
class Move:
    """The source and the target of a transfer, with one clock."""

    old: SqliteStore
    new: PostgresStore
    source: Source
    target: Target
    clock: SettableClock

    def __post_init__(self) -> None:
        self.before = Build(self.old, self.clock)
        self.after = Build(self.new, self.clock)
        self.after.id = self.before.id  # no two tasks share one

    async def all(self, *, finished: bool = True) -> TransferSummary:
        """Run a transfer after the leases of all workers have run out."""
        self.clock.advance(31.0)
        return await steps.transfer_tasks(
            self.source, self.target, finished=finished, on_progress=lambda _: None
        )
