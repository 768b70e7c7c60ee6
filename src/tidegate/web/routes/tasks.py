"""One task by its id, and pages of tasks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator
from starlette.requests import Request
from starlette.responses import Response

from tidegate.deadletter.redrive import redrive_tasks
from tidegate.domain.ids import id_or_none
from tidegate.domain.states import State
from tidegate.store.rows import ActAnswer, TaskFilter
from tidegate.web.bodies import wanted_wait
from tidegate.web.guard import (
    EVERYBODY,
    OPERATORS,
    READERS,
    SUBMITTERS,
    Answer,
    Guarded,
    Needs,
    principal_of,
)
from tidegate.web.problems import Problem
from tidegate.web.room import Room, TaskId, answer, no_such_task, tagged_answer
from tidegate.web.routes.submit import RETRY_AFTER, wait_for_end
from tidegate.web.shown import result_of, run_of, status_of
from tidegate.web.wire import ActOut, CancelAsk, History, TaskOut, TaskPage, TaskResult

_HURRIED = frozenset({State.SCHEDULED, State.RETRYING})


def _page_mark(after: str | None) -> str | None:
    mark = None if after is None else id_or_none(after)
    if after is not None and mark is None:
        raise ValueError("it is no `next` of a page: a UUID")
    return mark


def _text(given: str | None) -> str | None:
    if given is not None and "\x00" in given:
        raise ValueError("it has a NUL, which no name has")
    return given


Text = Annotated[str | None, AfterValidator(_text), Query(max_length=256)]
Limit = Annotated[int, Query(ge=1, description="Items in the page; more than the limit are the limit.")]
After = Annotated[
    str | None, AfterValidator(_page_mark), Query(max_length=64, description="`next` of the page before.")
]
States = Annotated[list[State] | None, Query(max_length=16, description="Repeatable.")]
Labels = Annotated[list[str] | None, Query(max_length=32, description="NAME=VALUE, repeatable.")]


def add(api: Guarded, room: Room) -> None:
    """Register the routes."""
    _add_looks(api, room)
    _add_acts(api, room)
    _add_pages(api, room)


def _add_looks(api: Guarded, room: Room) -> None:
    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}",
        Needs(EVERYBODY),
        answers={200: Answer("The task", TaskOut, ("ETag",)), 304: Answer("As the client knows it")},
    )
    async def task_status(request: Request, task_id: TaskId) -> Response:
        """Return where a task is and how far it has come."""
        return tagged_answer(request, status_of(await room.row(task_id, principal_of(request))))

    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}/result",
        Needs(EVERYBODY),
        answers={
            200: Answer("Final: the result, or why there is none", TaskResult),
            202: Answer("Not final yet", TaskResult, ("Retry-After",)),
        },
    )
    async def task_result(request: Request, task_id: TaskId) -> Response:
        """Return what a task returned; `Prefer: wait=N` waits for it, 20 s at most."""
        principal = principal_of(request)
        row = await room.row(task_id, principal)
        task_id = row.id
        stored = await (await room.store()).result(task_id)
        if stored is None and (wait := wanted_wait(request, room.settings)):
            stored = await wait_for_end(room, principal, task_id, wait)
        if stored is None:
            return answer(TaskResult(task_id, row.state.value), 202, Retry_After=RETRY_AFTER)
        return answer(result_of(task_id, stored, await room.plain(stored.data)))

    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}/history",
        Needs(READERS),
        answers={200: Answer("Runs and acts", History)},
    )
    async def task_history(request: Request, task_id: TaskId) -> Response:
        """Return every run of a task and every act on it, oldest first."""
        principal = principal_of(request)
        task_id = (await room.row(task_id, principal)).id
        entries = await (await room.store()).history(task_id)
        with_traceback = principal.role in OPERATORS
        return answer(History([run_of(entry, with_traceback=with_traceback) for entry in entries]))


def _add_acts(api: Guarded, room: Room) -> None:
    @api.route(
        "POST",
        "/api/v1/tasks/{task_id}/cancel",
        Needs(SUBMITTERS),
        body=CancelAsk,
        answers={200: Answer("`cancelled`, `asked` (it runs) or `finished` (it was final before)", ActOut)},
    )
    async def cancel_task(request: Request, task_id: TaskId) -> Response:
        """Cancel a task wherever it is. A running one is asked to stop and never runs again."""
        principal = principal_of(request)
        with room.in_flight(request, room.settings.body_limit):
            asked = await room.read_json(request, CancelAsk, otherwise=b"{}")
        task_id = (await room.row(task_id, principal)).id
        answers = await (await room.store()).cancel([task_id], why=asked.why[:500], force=asked.force)
        told = answers[task_id].value
        await room.audit.acted(principal, "cancel", [(task_id, told)], asked.why)
        return answer(ActOut(task_id, told))

    @api.route(
        "POST",
        "/api/v1/tasks/{task_id}/retry",
        Needs(OPERATORS),
        answers={202: Answer("It runs again", ActOut, ("Retry-After",))},
    )
    async def retry_task(request: Request, task_id: TaskId) -> Response:
        """Run a task again now: a dead one is redriven, a waiting one becomes due."""
        principal = principal_of(request)
        row = await room.row(task_id, principal)
        task_id, store = row.id, await room.store()
        if row.state is State.DEAD:
            answers = await redrive_tasks(store, [task_id], room.app.functions)
        elif row.state in _HURRIED:
            answers = await store.hurry([task_id])
        else:
            answers = {task_id: ActAnswer.REFUSED}
        told = answers[task_id]
        await room.audit.acted(principal, "retry", [(task_id, told.value)])
        if told is ActAnswer.UNKNOWN:
            raise no_such_task(task_id)
        if told is ActAnswer.REFUSED:
            raise Problem("refused", f"it is {row.state.value}; dead and waiting tasks can be retried")
        return answer(ActOut(task_id, told.value), 202, Retry_After=RETRY_AFTER)


def _add_pages(api: Guarded, room: Room) -> None:
    @api.route("GET", "/api/v1/tasks", Needs(READERS), answers={200: Answer("A page", TaskPage)})
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
        """Return tasks, the newest first, page by page."""
        limit = min(limit, room.settings.page_limit)
        which = TaskFilter(
            states=tuple(state or ()),
            queue=queue,
            function=function,
            reason=reason,
            tenant=principal_of(request).tenant,
            labels=labels_of(label),
        )
        rows = await (await room.store()).list_tasks(which, after=after, limit=limit)
        following = rows[-1].id if len(rows) == limit else None
        return answer(TaskPage([status_of(row) for row in rows], following))


def labels_of(given: list[str] | None) -> dict[str, str]:
    """Return labels from `NAME=VALUE` texts.

    Raises:
        Problem: One has no `=`, or a NUL.
    """
    pairs = [text.partition("=") for text in given or ()]
    if any(not mark or "\x00" in name + value for name, mark, value in pairs):
        at = {"at": "query.label", "detail": "write NAME=VALUE"}
        raise Problem("parameters", "label: write NAME=VALUE", errors=[at])
    return {name: value for name, _, value in pairs}
