"""Use Tidegate inside Flask: the queue as an extension, and a blueprint for the status of tasks.

Views enqueue with `function.enqueue_sync(…)`; a separate worker runs the tasks (`tidegate worker`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Flask, Response, current_app, url_for

from tidegate.app import Tidegate
from tidegate.codec.plain import plain, to_json, unstorable
from tidegate.errors import ConfigError, DataRemovedError, StoreError, TaskNotFoundError
from tidegate.handle import Handle
from tidegate.internals import core_of
from tidegate.store.rows import StoredResult
from tidegate.threads.bridge import require_threads, run_sync
from tidegate.values import TaskStatus

MaySee = Callable[[TaskStatus], bool]
"""Returns whether the user of the present request (`flask.session`, `flask.g`) may see a task."""

_NAME = "tidegate"


def init_app(site: Flask, queue: Tidegate) -> None:
    """Attach a queue to a Flask application. A store that cannot be reached becomes a 503, not a 500.

    Raises:
        ConfigError: The server has replaced the threads of this process, as gevent and eventlet do.
    """
    require_threads()
    site.extensions[_NAME] = queue
    site.register_error_handler(StoreError, _unavailable)


def queue() -> Tidegate:
    """Return the queue of the current application.

    Raises:
        ConfigError: The application has no queue.
    """
    found = current_app.extensions.get(_NAME)
    if not isinstance(found, Tidegate):
        raise ConfigError(
            "this application has no queue", fix="call init_app(site, queue) when you create the application"
        )
    return found


def tasks_blueprint(may_see: MaySee, *, name: str = "tasks") -> Blueprint:
    """Return a blueprint with the routes status, result and cancel of a task.

    Args:
        may_see: Called for every task. A task that this function does not allow gets a 404.
        name: Name of the blueprint.
    """
    blueprint = Blueprint(name, __name__)

    def visible(task_id: str) -> TaskStatus | None:
        try:
            found = queue().status_sync(task_id)
        except TaskNotFoundError:
            return None
        return found if may_see(found) else None

    @blueprint.get("/<task_id>")
    def status(task_id: str) -> Any:
        found = visible(task_id)
        return _not_found() if found is None else _row_json(found)

    @blueprint.get("/<task_id>/result")
    def result(task_id: str) -> Any:
        found = visible(task_id)
        if found is None:
            return _not_found()
        try:
            stored = run_sync(_read_visible(queue(), task_id))
        except DataRemovedError as error:
            return {"error": error.message, "code": error.code}, 410
        if stored is None:
            return _row_json(found), 202, {"Retry-After": "1"}
        return Response(to_json(_result_json(task_id, stored)), mimetype="application/json")

    @blueprint.post("/<task_id>/cancel")
    def cancel(task_id: str) -> Any:
        if visible(task_id) is None:
            return _not_found()
        return {"task_id": task_id, "answer": queue().cancel_sync(task_id).value}

    return blueprint


def accepted(
    handle: Handle[Any], endpoint: str = "tasks.status"
) -> tuple[dict[str, str], int, dict[str, str]]:
    """Return the response to a submit: 202 with the URL of the task's status.

    Args:
        handle: The handle that `enqueue_sync` returned.
        endpoint: The blueprint's endpoint for the status.
    """
    location = url_for(endpoint, task_id=handle.id)
    return {"task_id": handle.id, "location": location}, 202, {"Location": location, "Retry-After": "1"}


async def _read_visible(queue: Tidegate, task_id: str) -> StoredResult | None:
    return await (await core_of(queue).opened_store()).get_result(task_id)


def _result_json(task_id: str, stored: StoredResult) -> dict[str, Any]:
    """Return the result of a task in the form of the HTTP API."""
    shown: dict[str, Any] = {"task_id": task_id, "state": stored.state.value, "result": None}
    if (missing := unstorable(stored.data)) is not None:
        return shown | {"unstorable": {"type": missing.type_name, "reason": missing.reason}}
    return shown | ({"result": plain(stored.data)} if stored.data else {})


def _row_json(status: TaskStatus) -> dict[str, Any]:
    progress = status.progress
    return {
        "task_id": status.task_id,
        "state": status.state.value,
        "run": status.run,
        "reason": status.reason,
        "progress": None if progress is None else [progress.done, progress.total, progress.note],
    }


def _not_found() -> tuple[dict[str, str], int]:
    return {"error": "no such task"}, 404


def _unavailable(error: StoreError) -> tuple[Response | dict[str, str], int, dict[str, str]]:
    return (
        {"error": "the queue cannot be reached at the moment", "code": error.code},
        503,
        {"Retry-After": "2"},
    )
