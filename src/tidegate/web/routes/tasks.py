"""Routes that read, cancel and retry a task by its id, and list tasks."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import Query
from pydantic import AfterValidator
from starlette.requests import Request
from starlette.responses import Response

from tidegate.domain.ids import id_or_none
from tidegate.domain.readers import choice_option
from tidegate.domain.states import State
from tidegate.operations.tasks import retry_tasks
from tidegate.store.rows import ActionStatus, TaskFilter
from tidegate.web.api_context import ApiContext, TaskId, etag_response, json_response, task_not_found
from tidegate.web.problems import Problem
from tidegate.web.protected_routes import (
    ALL_ROLES,
    OPERATORS,
    READERS,
    SUBMITTERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.request_body import requested_wait
from tidegate.web.request_schemas import CancelTaskRequest
from tidegate.web.routes.submit import RETRY_AFTER, wait_until_final
from tidegate.web.schemas import ActionOut, HistoryOut, TaskOut, TaskPage, TaskResult
from tidegate.web.serialize import to_run_out, to_task_result, to_task_status


def _page_cursor(after: str | None) -> str | None:
    cursor = None if after is None else id_or_none(after)
    if after is not None and cursor is None:
        raise ValueError("it is not the `next` of a page, which is a UUID")
    return cursor


def _text(values: str | None) -> str | None:
    if values is not None and "\x00" in values:
        raise ValueError("it contains a NUL character, which names cannot have")
    return values


Text = Annotated[str | None, AfterValidator(_text), Query(max_length=256)]
Moment = Annotated[
    str, Query(max_length=64, description="A time (ISO 8601 with offset) or an age: `24h`, `7d`.")
]
Limit = Annotated[int, Query(ge=1, description="How many items the page has at most; up to 200 by default.")]
After = Annotated[
    str | None,
    AfterValidator(_page_cursor),
    Query(max_length=64, description="The `next` of the previous page."),
]
_State = TypeVar("_State", bound=StrEnum)


def state_or_any(state: str | None, default: _State) -> _State | None:
    """Return the state that a page is to have, `default` without one; None for `all`.

    Raises:
        OptionError: There is no such state.
    """
    states = type(default)
    wanted = choice_option("state", state or default, [*states, "all"])
    return None if wanted == "all" else states(wanted)


States = Annotated[list[State] | None, Query(max_length=16, description="Repeatable.")]
Labels = Annotated[list[str] | None, Query(max_length=32, description="NAME=VALUE, repeatable.")]


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""
    _add_read_routes(api, context)
    _add_action_routes(api, context)
    _add_list_routes(api, context)


def _add_read_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}",
        AccessRule(ALL_ROLES),
        responses={
            200: ResponseSpec("The task", TaskOut, ("ETag",)),
            304: ResponseSpec("Not changed"),
        },
    )
    async def task_status(request: Request, task_id: TaskId) -> Response:
        """Return the state and progress of a task."""
        return etag_response(request, to_task_status(await context.row(task_id, principal_of(request))))

    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}/result",
        AccessRule(ALL_ROLES),
        responses={
            200: ResponseSpec("The task is final: the result, or why there is none", TaskResult),
            202: ResponseSpec("Not final yet", TaskResult, ("Retry-After",)),
        },
    )
    async def task_result(request: Request, task_id: TaskId) -> Response:
        """Return the result of a task; `Prefer: wait=N` waits for it, at most 20 s."""
        principal = principal_of(request)
        row = await context.row(task_id, principal)
        task_id = row.id
        stored = await (await context.store()).get_result(task_id)
        if stored is None and (wait := requested_wait(request, context.settings)):
            stored = await wait_until_final(context, principal, task_id, wait)
        if stored is None:
            return json_response(TaskResult(task_id, row.state.value), 202, Retry_After=RETRY_AFTER)
        return json_response(to_task_result(task_id, stored, await context.plain(stored.data)))

    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}/history",
        AccessRule(READERS),
        responses={200: ResponseSpec("Runs and actions", HistoryOut)},
    )
    async def task_history(request: Request, task_id: TaskId) -> Response:
        """Return every run of a task and every action on it, the oldest first."""
        principal = principal_of(request)
        task_id = (await context.row(task_id, principal)).id
        entries = await (await context.store()).get_history(task_id)
        with_traceback = principal.role in OPERATORS
        return json_response(
            HistoryOut([to_run_out(entry, with_traceback=with_traceback) for entry in entries])
        )


def _add_action_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "POST",
        "/api/v1/tasks/{task_id}/cancel",
        AccessRule(SUBMITTERS),
        body=CancelTaskRequest,
        responses={
            200: ResponseSpec(
                "`cancelled`, `requested` (it runs and was asked to stop) or `finished` (it was final)",
                ActionOut,
            )
        },
    )
    async def cancel_task(request: Request, task_id: TaskId) -> Response:
        """Cancel a task in any state. A running task is asked to stop and does not run again."""
        principal = principal_of(request)
        cancel_request = await context.read_body(request, CancelTaskRequest, default=b"{}")
        task_id = (await context.row(task_id, principal)).id
        answers = await (await context.store()).cancel(
            [task_id], why=cancel_request.why[:500], force=cancel_request.force
        )
        status = answers[task_id].value
        await context.audit.record_action(principal, "cancel", [(task_id, status)], cancel_request.why)
        return json_response(ActionOut(task_id, status))

    @api.route(
        "POST",
        "/api/v1/tasks/{task_id}/retry",
        AccessRule(OPERATORS),
        responses={202: ResponseSpec("It runs again", ActionOut, ("Retry-After",))},
    )
    async def retry_task(request: Request, task_id: TaskId) -> Response:
        """Run a task now: a dead task is redriven, a scheduled or retrying task becomes due."""
        principal = principal_of(request)
        row = await context.row(task_id, principal)
        task_id = row.id
        answers = await retry_tasks(
            await context.store(), [task_id], context.core.functions, by=principal.name
        )
        status = answers[task_id]
        await context.audit.record_action(principal, "retry", [(task_id, status.value)])
        if status is ActionStatus.UNKNOWN:
            raise task_not_found(task_id)
        if status is ActionStatus.REFUSED:
            raise Problem(
                "refused",
                f"the task is {row.state.value}; only dead, scheduled and retrying tasks can be retried",
            )
        return json_response(ActionOut(task_id, status.value), 202, Retry_After=RETRY_AFTER)


def _add_list_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route("GET", "/api/v1/tasks", AccessRule(READERS), responses={200: ResponseSpec("A page", TaskPage)})
    async def list_tasks(
        request: Request,
        state: States = None,
        queue: Text = None,
        function: Text = None,
        reason: Text = None,
        label: Labels = None,
        after: After = None,
        limit: Limit = 50,
    ) -> Response:
        """Return one page of tasks, the newest first."""
        limit = min(limit, context.settings.page_limit)
        which = TaskFilter(
            states=tuple(state or ()),
            queue=queue,
            function=function,
            reason=reason,
            tenant=principal_of(request).tenant,
            labels=labels_of(label),
        )
        rows = await (await context.store()).list_tasks(which, after=after, limit=limit)
        following = rows[-1].id if len(rows) == limit else None
        return json_response(TaskPage([to_task_status(row) for row in rows], following))


def labels_of(values: list[str] | None) -> dict[str, str]:
    """Return labels from strings `NAME=VALUE`.

    Raises:
        Problem: A string has no `=`, or contains a NUL character.
    """
    pairs = [text.partition("=") for text in values or ()]
    if any(not equals or "\x00" in name + value for name, equals, value in pairs):
        at = {"at": "query.label", "detail": "write NAME=VALUE"}
        raise Problem("parameters", "label: write NAME=VALUE", errors=[at])
    return {name: value for name, _, value in pairs}
