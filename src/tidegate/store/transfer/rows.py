"""The rows that a transfer copies, and its summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.store.common import ids

STATE_TABLES = ("ready", "waiting", "dead", "archive")
"""The tables of tasks that are not running."""
UNFINISHED = ("ready", "waiting")
"""The tables of tasks that will still run."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one table, as SQLite stores them."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    def of(self, tasks: frozenset[bytes]) -> Table:
        """Return this table with only the rows of these tasks."""
        at = self.columns.index("id" if self.name == "task" else "task_id")
        return Table(self.name, self.columns, [row for row in self.rows if row[at] in tasks])

    def column(self, name: str) -> list[Any]:
        """Return the values of one column."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some tasks with everything that belongs to them."""

    tasks: tuple[bytes, ...]
    """Ids in ascending order."""
    tables: Mapping[str, Table]

    def of(self, tasks: tuple[bytes, ...]) -> Batch:
        """Return a batch with only these tasks."""
        some = frozenset(tasks)
        return Batch(tasks, {name: table.of(some) for name, table in self.tables.items()})

    def states(self) -> dict[bytes, str]:
        """Return the table of each task."""
        found = {task: name for name in ("ready", "dead") for task in self.tables[name].column("task_id")}
        for name in ("waiting", "archive"):
            table = self.tables[name]
            found.update(zip(table.column("task_id"), table.column("state"), strict=True))
        return found

    def unfinished(self) -> frozenset[bytes]:
        """Return the tasks that will still run."""
        return frozenset(task for name in UNFINISHED for task in self.tables[name].column("task_id"))


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch at the target."""

    moved: frozenset[bytes]
    there: frozenset[bytes]
    """Tasks that were at the target before, in any state. They are not changed."""
    kept_back: Mapping[bytes, str]
    """Tasks that stay at the source, and why."""

    def __or__(self, other: BatchResult) -> BatchResult:
        return BatchResult(
            self.moved | other.moved, self.there | other.there, {**self.kept_back, **other.kept_back}
        )


class KeptTask(NamedTuple):
    """A task that stays at the source."""

    state: str
    why: str


@dataclass(slots=True)
class TransferSummary:
    """What a transfer has done so far, or a dry run would do. Numbers are by state."""

    tasks: Counter[str]
    """Tasks at the source before the transfer."""
    moved: Counter[str] = field(default_factory=Counter)
    kept_back: dict[str, KeptTask] = field(default_factory=dict)
    """Tasks that stay at the source, by id."""

    def add(self, batch: Batch, batch_result: BatchResult) -> None:
        """Count a batch."""
        states = batch.states()
        self.moved.update(states[task] for task in batch_result.moved)
        self.kept_back.update(
            {ids.to_text(task): KeptTask(states[task], why) for task, why in batch_result.kept_back.items()}
        )

    def there(self, state: str) -> int:
        """Return how many tasks of a state were at the target before."""
        return self.tasks[state] - self.moved[state] - self.kept(state)

    def kept(self, state: str) -> int:
        """Return how many tasks of a state were kept back."""
        return sum(kept.state == state for kept in self.kept_back.values())
