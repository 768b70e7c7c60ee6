"""The tasks that a test's code enqueued, as values to look at, and the search for the expected one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidegate.domain.moments import to_datetime
from tidegate.domain.spec import Priority
from tidegate.domain.states import FINAL, State
from tidegate.errors import UsageError
from tidegate.store.rows import TaskFilter, TaskRow
from tidegate.task import TaskFunction
from tidegate.testing.kit.results import KitError
from tidegate.testing.kit.store import KitStore

PAGE = 1_000

Args = tuple[Any, ...] | Mapping[str, Any] | None
"""All positional arguments as a tuple, or some arguments by name; None: any."""


@dataclass(frozen=True, slots=True)
class EnqueuedTask:
    """One task that the code under test enqueued."""

    id: str
    function: str
    args: Mapping[str, Any]
    """The task's arguments by name, as the function will get them. The values of `*args` are one tuple, under
    the parameter's name."""
    queue: str
    state: State
    priority: Priority
    tenant: str
    key: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    due_at: datetime | None = None
    """When the task runs next; None if it does not wait for a moment."""
    attempts: int = 0
    """Charged attempts so far."""

    def __str__(self) -> str:
        named = ", ".join(f"{name}={_shown(value)}" for name, value in self.args.items())
        return f"{self.function}({named}) on {self.queue}: {self.state}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a test looks for."""

    function: TaskFunction[Any, Any, Any] | None = None
    args: Args = None
    queue: str | None = None
    state: State | None = None
    priority: Priority | None = None
    tenant: str | None = None
    key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    due_at: datetime | None = None

    def __str__(self) -> str:
        text = "a task" if self.function is None else self.function.spec.name
        for name in ("args", "queue", "state", "priority", "tenant", "key", "labels", "due_at"):
            value = getattr(self, name)
            if value is not None and value != {}:
                text += f", {name}={value.word if isinstance(value, Priority) else _shown(value)}"
        return text

    def matches(self, task: EnqueuedTask) -> bool:
        """Return whether a task is what the test looks for."""
        return (
            (self.function is None or self.function.spec.name == task.function)
            and all(
                getattr(self, name) in (None, getattr(task, name))
                for name in ("queue", "state", "priority", "tenant", "key")
            )
            and (self.due_at is None or (task.due_at is not None and _is_near(task.due_at, self.due_at)))
            and self.labels.items() <= task.labels.items()
            and self._has_args(task)
        )

    def _has_args(self, task: EnqueuedTask) -> bool:
        if self.args is None:
            return True
        if isinstance(self.args, Mapping):
            return all(name in task.args and task.args[name] == value for name, value in self.args.items())
        if self.function is None:
            raise UsageError("args=(…) needs the task function", fix="name it, or write args={'name': value}")
        signature = self.function.signature
        return arguments_by_name(self.function, signature.bind(self.args, {})) == dict(task.args)


def list_enqueued(
    store: KitStore, functions: Mapping[str, TaskFunction[Any, Any, Any]], wanted: Wanted
) -> list[EnqueuedTask]:
    """Return the tasks that a test looks for, in the order in which they were enqueued."""
    task_filter = TaskFilter(
        states=() if wanted.state is None else (wanted.state,),
        queue=wanted.queue,
        function=None if wanted.function is None else wanted.function.spec.name,
    )
    rows: list[TaskRow] = []
    after: str | None = None
    while True:
        page = store.now_complete(store.list_tasks(task_filter, after=after, limit=PAGE))
        rows += page
        if len(page) < PAGE:
            break
        after = page[-1].id
    tasks = [_enqueued_task(store, functions, row) for row in reversed(rows)]
    return [task for task in tasks if wanted.matches(task)]


def assert_enqueued(
    wanted: Wanted, count: int | None, find: Callable[[Wanted], list[EnqueuedTask]]
) -> list[EnqueuedTask]:
    """Return the tasks that a test looks for.

    Raises:
        KitError: There is none, or not as many as `count`.
    """
    found = find(wanted)
    if (count is None and found) or count == len(found):
        return found
    expected = {None: "at least one", 0: "no"}.get(count, str(count))
    others = find(Wanted())
    if found:
        message, shown = f"expected {expected} enqueued {wanted}; found {len(found)}:", found
    else:
        message = f"expected {expected} enqueued {wanted}; found none."
        shown = others
        message += " Enqueued were:" if others else " Nothing was enqueued at all."
    raise KitError(message, [str(task) for task in shown], _fix(wanted, found, others))


def arguments_by_name(function: TaskFunction[Any, Any, Any], payload: bytes) -> dict[str, Any]:
    """Return the arguments of a stored call by the names of their parameters, without the context."""
    args, kwargs = function.signature.load(payload)
    parameters = inspect.signature(function.function)
    visible = [item for name, item in parameters.parameters.items() if name != function.signature.context]
    return dict(parameters.replace(parameters=visible).bind_partial(*args, **kwargs).arguments)


def _fix(wanted: Wanted, found: Sequence[EnqueuedTask], others: Sequence[EnqueuedTask]) -> str:
    if found:
        return "compare the arguments above; count= is exact, and without it one is enough"
    if wanted.function is not None and any(task.function == wanted.function.spec.name for task in others):
        return "the function was enqueued, but differently: compare arguments, queue and options"
    return "check that the code under test reaches the enqueue, on the application that the kit was given"


def _enqueued_task(
    store: KitStore, functions: Mapping[str, TaskFunction[Any, Any, Any]], row: TaskRow
) -> EnqueuedTask:
    function = functions.get(row.function)
    named: dict[str, Any] = {}
    if function is not None:
        payload, _ = store.now_complete(store.get_payload(row.id))
        named = arguments_by_name(function, payload)
    return EnqueuedTask(
        id=row.id,
        function=row.function,
        args=named,
        queue=row.queue,
        state=row.state,
        priority=row.priority,
        tenant=row.tenant,
        key=row.key,
        labels=dict(row.labels),
        due_at=None if row.due_at is None or row.state in FINAL else to_datetime(row.due_at),
        attempts=row.counters.attempts,
    )


def _is_near(first: datetime, second: datetime) -> bool:
    return abs((first - second).total_seconds()) <= 1.0


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
