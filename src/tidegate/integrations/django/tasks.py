"""A backend for `django.tasks` (Django 6): `@task` functions stored in, and run by, Tidegate.

Example:
    ```python
    # settings.py
    TASKS = {
        "default": {
            "BACKEND": "tidegate.integrations.django.tasks.TidegateBackend",
            "OPTIONS": {"app": "mysite.queue:queue"},
        }
    }

    # mysite/queue.py, for `tidegate worker mysite.queue:queue`
    queue = declare_django_tasks(Tidegate())
    ```
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
from django.tasks.exceptions import TaskResultDoesNotExist
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils.json import normalize_json
from django.utils.module_loading import import_string

from tidegate.app import Tidegate
from tidegate.context import Context
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.errors import DataRemovedError
from tidegate.integrations.django import on_commit, use_django
from tidegate.integrations.django.task_names import DjangoTaskNames, runs_django_tasks, task_function_name
from tidegate.internals import core_of
from tidegate.store.rows import HistoryRow, TaskRow
from tidegate.threads.bridge import run_sync
from tidegate.verdicts import Permanent
from tidegate.worker.application import load_application

FUNCTION = "django:task"
"""Runs every Django task that has no function of its own name; the first argument says which."""

_STATUSES = {
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}
"""All others are READY."""


def declare_django_tasks(queue: Tidegate, **settings: Any) -> Tidegate:
    """Declare the task functions that run Django tasks, and set Django up in the queue's workers.

    Tasks in the `tasks` modules of installed applications run under their own names, such as
    `shop.tasks:add`; other tasks run under `django:task`.

    Args:
        queue: The application whose workers run them; it is returned.
        settings: Settings of `@queue.task`: timeout, max_attempts, retry…
    """

    @queue.task(name=FUNCTION, **settings)
    def run(ctx: Context, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return run_django_task(ctx, path, args, kwargs)

    def settings_of(task: Task) -> dict[str, Any]:
        return {"queue": task.queue_name, "priority": _priority(task.priority)} | settings

    queue.on_load(DjangoTaskNames(queue, run.function, settings_of).declare)
    return use_django(queue)


def run_django_task(ctx: Context, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a Django task and return its value as plain JSON.

    Raises:
        Permanent: There is no such task; nothing else can be run by its path.
    """
    try:
        task = import_string(path)
    except ImportError as error:
        raise Permanent(f"{path} is not there any more") from error
    if not isinstance(task, Task):
        raise Permanent(f"{path} is no Django task")
    close_old_connections()  # one that the server closed meanwhile would fail its first query
    result = _running(ctx, task, args, kwargs)
    task_started.send(sender=TidegateBackend, task_result=result)
    try:
        given = (TaskContext(task_result=result), *args) if task.takes_context else args
        value = normalize_json(task.call(*given, **kwargs))
    except BaseException:
        object.__setattr__(result, "status", TaskResultStatus.FAILED)
        raise
    else:
        object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
        object.__setattr__(result, "_return_value", value)
        return value
    finally:
        object.__setattr__(result, "finished_at", datetime.now(UTC))
        task_finished.send(sender=TidegateBackend, task_result=result)
        close_old_connections()


class TidegateBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Stores Django tasks in Tidegate. `declare_django_tasks` makes the application that runs the tasks.

    `OPTIONS`: `app`, the queue as `module:attribute`; `enqueue_on_commit` (True unless given): store when
    the present transaction has committed; `using`: the database of that transaction; all databases with an
    open one unless given.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._app = str(self.options.get("app", ""))
        self._on_commit = bool(self.options.get("enqueue_on_commit", True))
        self._using: str | None = self.options.get("using")
        if not self._app:
            raise ImproperlyConfigured('TASKS: give OPTIONS = {"app": "module:queue"}')

    @property
    def queue(self) -> Tidegate:
        """The queue, imported at first use: it may import Django applications."""
        queue = load_application(self._app)
        if FUNCTION not in core_of(queue).functions:
            raise ImproperlyConfigured(f"{self._app}: call declare_django_tasks(queue) where it is made")
        found: Tidegate = queue
        return found

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: dict[str, Any]) -> TaskResult:
        """Store a task; with `enqueue_on_commit`, when the present transaction has committed."""
        self.validate_task(task)
        queue = self.queue
        options: dict[str, Any] = {"queue": task.queue_name, "priority": _priority(task.priority)}
        if task.run_after is not None:
            options["run_at"] = task.run_after
        name = task_function_name(task)
        function = queue.function(name if runs_django_tasks(queue, name) else FUNCTION)
        prepared = function.using(**options)
        new = prepared.prepare(
            path=task.module_path, args=normalize_json(list(args)), kwargs=normalize_json(dict(kwargs))
        )
        result = _result(
            task, new.task_id, TaskResultStatus.READY, list(args), dict(kwargs), backend=self.alias
        )

        def store() -> None:
            queue.enqueue_many_sync([new])
            object.__setattr__(result, "enqueued_at", datetime.now(UTC))
            task_enqueued.send(type(self), task_result=result)

        if self._on_commit:
            on_commit(store, using=self._using)
        else:
            store()
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return where a task is.

        Raises:
            TaskResultDoesNotExist: No Django task has this id, or its time is over.
        """
        return run_sync(self.aget_result(result_id))

    async def aget_result(self, result_id: str) -> TaskResult:
        """As `get_result`."""
        queue = self.queue
        store = await core_of(queue).opened_store()
        row = (await store.read_tasks([result_id])).get(result_id)
        if row is None or not runs_django_tasks(queue, row.function):
            raise TaskResultDoesNotExist(result_id)
        try:
            payload, _ = await store.get_payload(result_id)
            value = await queue.result(result_id, 0) if row.state is State.SUCCEEDED else None
        except DataRemovedError as error:
            raise TaskResultDoesNotExist(result_id) from error
        _, call = core_of(queue).functions[row.function].signature.load(payload)
        result = self._stored(row, call, await store.get_history(result_id))
        if row.state is State.SUCCEEDED:
            object.__setattr__(result, "_return_value", value)
        return result

    def _stored(self, row: TaskRow, call: dict[str, Any], history: Sequence[HistoryRow]) -> TaskResult:
        runs = [entry for entry in history if entry.kind == "run"]
        return _result(
            import_string(call["path"]),
            row.id,
            _STATUSES.get(row.state, TaskResultStatus.READY),
            call["args"],
            call["kwargs"],
            backend=self.alias,
            enqueued_at=_moment(row.enqueued_at),
            started_at=_moment(runs[0].at if runs else None),
            finished_at=_moment(row.finished_at),
            last_attempted_at=_moment(runs[-1].at if runs else None),
            errors=[_error(run) for run in runs if run.error_class],
            worker_ids=[run.worker_id for run in runs],
        )


def _priority(number: int) -> Priority:
    """Return Tidegate's priority for Django's -100 to 100: above 0 `interactive`, below 0 `bulk`."""
    if number > 0:
        return Priority.INTERACTIVE
    return Priority.BULK if number < 0 else Priority.NORMAL


def _error(run: HistoryRow) -> TaskError:
    path = run.error_class if "." in run.error_class else f"builtins.{run.error_class}"
    return TaskError(exception_class_path=path, traceback=run.traceback)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _running(ctx: Context, task: Task, args: list[Any], kwargs: dict[str, Any]) -> TaskResult:
    """Return a running task as Django sees it, without asking the store."""
    now = datetime.now(UTC)
    return _result(
        task,
        ctx.task_id,
        TaskResultStatus.RUNNING,
        args,
        kwargs,
        backend=task.backend,
        started_at=now,
        last_attempted_at=now,
        worker_ids=[f"run {number}" for number in range(1, ctx.run + 1)],
    )


def _result(
    task: Task,
    task_id: str,
    status: TaskResultStatus,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    backend: str,
    **known: Any,
) -> TaskResult:
    """Return a task as Django sees it; unknown fields are empty."""
    moments = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
    given: dict[str, Any] = {**moments, "errors": [], "worker_ids": [], **known}
    return TaskResult(
        task=task, id=task_id, status=status, args=args, kwargs=kwargs, backend=backend, **given
    )
