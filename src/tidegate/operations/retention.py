"""Shows people what each rule of retention would remove now."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.domain.retention import (
    Data,
    FinalTable,
    Retention,
    Rule,
    ages_of,
    due_data,
    rule_of,
    rules_set,
)
from tidegate.store.protocol import Store
from tidegate.store.retention_rows import FinalTask

MOST_TASKS = 100_000
"""How many final tasks of each table a preview reads. If there are more, its numbers are lower bounds."""
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class RulePreview:
    """What one retention rule would remove now."""

    rule: str
    """The key of the rule in `[retention]`."""
    queue: str
    """The queue of the rule; empty for all queues that have no such rule of their own."""
    kept_seconds: float
    """How many seconds the rule keeps data; infinity for ever."""
    due: int
    """How many tasks the rule would remove, or remove data of."""
    oldest_at: float | None
    """When the oldest of these tasks ended; None if there is none."""
    is_least: bool
    """Whether there are more final tasks than were read, so that `due` may be higher."""


@dataclass(slots=True)
class _Found:
    due: int = 0
    oldest_at: float | None = None

    def add(self, at: float) -> None:
        self.due += 1
        self.oldest_at = at if self.oldest_at is None else min(self.oldest_at, at)


async def preview_retention(store: Store, retention: Retention, most: int = MOST_TASKS) -> list[RulePreview]:
    """Return what each rule would remove now, and change nothing.

    Args:
        store: Holds the tasks.
        retention: The rules.
        most: How many final tasks of each table to read, the oldest first.
    """
    found: dict[Rule, _Found] = {rule: _Found() for rule in rules_set(retention)}
    is_least = False
    for table in FinalTable:
        ages = ages_of(retention, table)
        if ages:
            is_least |= await _look(store, retention, table, ages[0], most, found)
    return [
        RulePreview(rule.name, rule.queue, rule.seconds, each.due, each.oldest_at, is_least)
        for rule, each in found.items()
    ]


async def _look(
    store: Store,
    retention: Retention,
    table: FinalTable,
    age: float,
    most: int,
    found: dict[Rule, _Found],
) -> bool:
    """Count what is due in a table; return whether there are more tasks than were read."""
    after, seen = None, 0
    while seen < most:
        page = await store.list_final_tasks(table, older_than_seconds=age, after=after, limit=_PAGE)
        if not page:
            return False
        due: dict[Data, list[FinalTask]] = {}
        for task in page:
            for data in due_data(
                retention, task.state, task.queue, task.age_seconds, is_redriven=task.is_redriven
            ):
                due.setdefault(data, []).append(task)
        for data, tasks in due.items():
            ids = [task.task_id for task in tasks]
            still = set(ids) if data is Data.TASKS else await store.list_tasks_with_parts(ids, [data])
            for task in tasks:
                if task.task_id in still:
                    rule = rule_of(retention, data, task.state, task.queue, is_redriven=task.is_redriven)
                    found[rule].add(task.at)
        after, seen = page[-1].position, seen + len(page)
    return True
