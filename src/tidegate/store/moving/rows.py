"""What travels, and what a move has to tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.store import ids

PLACES = ("ready", "waiting", "dead", "archive")
"""The narrow tables that a task can rest in."""
UNFINISHED = ("ready", "waiting")
"""Those whose tasks will still run by themselves."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one table, as SQLite holds them."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    def only(self, column: str, values: frozenset[Any]) -> Table:
        """Return this table with those rows alone whose column has one of these values."""
        at = self.columns.index(column)
        return Table(self.name, self.columns, [row for row in self.rows if row[at] in values])

    def column(self, name: str) -> list[Any]:
        """Return the values of one column."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some tasks with all that belongs to them."""

    tasks: tuple[bytes, ...]
    """Ids, rising."""
    tables: Mapping[str, Table]

    def states(self) -> dict[bytes, str]:
        """Return where each task rests."""
        found = {task: name for name in ("ready", "dead") for task in self.tables[name].column("task_id")}
        for name in ("waiting", "archive"):
            table = self.tables[name]
            found.update(zip(table.column("task_id"), table.column("state"), strict=True))
        return found

    def unfinished(self) -> frozenset[bytes]:
        """Return the tasks that will still run by themselves."""
        return frozenset(task for name in UNFINISHED for task in self.tables[name].column("task_id"))


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of a batch at the target."""

    moved: frozenset[bytes]
    there: frozenset[bytes]
    """Were at the target before, in whatever state; left as they are."""
    kept_back: frozenset[bytes]
    """Stay at the source: another task has their key or unique name at the target."""


@dataclass(slots=True)
class Tally:
    """What a move has done so far, or a dry run would do: numbers by state."""

    tasks: Counter[str]
    """At the source, before the move."""
    moved: Counter[str] = field(default_factory=Counter)
    kept_back: dict[str, str] = field(default_factory=dict)
    """States by task id."""

    def add(self, batch: Batch, landed: Landed) -> None:
        """Count a batch."""
        states = batch.states()
        self.moved.update(states[task] for task in landed.moved)
        self.kept_back.update({ids.text(task): states[task] for task in sorted(landed.kept_back)})

    def there(self, state: str) -> int:
        """Return how many tasks of a state were at the target before."""
        kept = sum(kept_state == state for kept_state in self.kept_back.values())
        return self.tasks[state] - self.moved[state] - kept
