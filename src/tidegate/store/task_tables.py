"""The registry of the tables that hold data of tasks: the only list of them.

Retention, the archive, purges, `forget`, `db size` and `db move` use it. A new table of task data needs one
entry here and its migration. A test compares the registry with the schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tidegate.domain.retention import Data

REMOVED = "removed"
"""The codec tag of data that was removed before its task and whose row stays."""


@dataclass(frozen=True, slots=True)
class TaskTable:
    """A table whose rows belong to one task each, and are deleted with it."""

    name: str
    data: Data
    """Which retention applies."""
    key: str = "task_id"
    """The column with the task's id."""
    is_marked: bool = False
    """Whether data removed before its task leaves its row, empty and with the codec tag `REMOVED`.
    Without its row, a result would read as null."""


TASK_TABLES = (
    TaskTable("payload", Data.PAYLOADS),
    TaskTable("archive", Data.TASKS),
    TaskTable("result", Data.RESULTS, is_marked=True),
    TaskTable("dead", Data.TASKS),
    TaskTable("progress", Data.TASKS),
    TaskTable("usage", Data.TASKS),
    TaskTable("attempt", Data.HISTORY),
    TaskTable("action", Data.HISTORY),
    TaskTable("doubt", Data.STEPS),
    TaskTable("step", Data.STEPS),
    TaskTable("event_wait", Data.STEPS),
    TaskTable("task_wait", Data.STEPS),
    TaskTable("approval", Data.STEPS),
    TaskTable("cache_wait", Data.STEPS),
    TaskTable("provider_job", Data.STEPS),
    TaskTable("provider_job_item", Data.STEPS),
    TaskTable("stream", Data.CHUNKS),
    TaskTable("chunk", Data.CHUNKS),
    TaskTable("task_after", Data.TASKS),
    TaskTable("task", Data.TASKS, key="id"),
)
"""Every table of task data, in the order in which the rows of a task are deleted."""

UNFINISHED_TABLES = ("ready", "running", "waiting", "enqueue_batch_task")
"""Tables of tasks that are not final. A task has no row there when it is removed."""


def tables_of(data: Iterable[Data]) -> tuple[TaskTable, ...]:
    """Return the tables of these kinds of data. A task includes all other kinds."""
    wanted = frozenset(data)
    return tuple(table for table in TASK_TABLES if table.data in wanted or Data.TASKS in wanted)


@cache
def statement_for(table: TaskTable, text: str) -> str:
    """Return a statement of `task_tables.sql` for one table."""
    return text.replace("task_table", table.name).replace("task_key", table.key)
