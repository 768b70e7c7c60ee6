"""Dead letters: looking at them, sending them back, deleting them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tidegate.deadletter.redrive import purge_tasks, redrive_tasks
from tidegate.store.rows import ActAnswer, TaskFilter
from tidegate.web.guard import OPERATORS, READERS, Answer, Guarded, Needs, principal_of
from tidegate.web.room import Room, answer
from tidegate.web.routes.tasks import After, Labels, Limit, Text, labels_of
from tidegate.web.shown import letter_of
from tidegate.web.wire import ActOut, ActsOut, Ids, LetterPage

_DONE = {200: Answer("What was done to each: `done`, `refused` or `unknown`", ActsOut)}


def add(api: Guarded, room: Room) -> None:
    """Register the routes."""

    @api.route("GET", "/api/v1/dead-letters", Needs(READERS), answers={200: Answer("A page", LetterPage)})
    async def list_dead_letters(
        request: Request,
        queue: Text = None,
        function: Text = None,
        reason: Text = None,
        error_class: Text = None,
        label: Labels = None,
        after: After = None,
        limit: Limit = 50,
    ) -> Response:
        """Return dead letters, the latest failure first, page by page."""
        limit = min(limit, room.settings.page_limit)
        which = TaskFilter(
            queue=queue,
            function=function,
            reason=reason,
            error_class=error_class,
            tenant=principal_of(request).tenant,
            labels=labels_of(label),
        )
        letters = await (await room.store()).dead_letters(which, after=after, limit=limit)
        following = letters[-1].task_id if len(letters) == limit else None
        return answer(LetterPage([letter_of(letter) for letter in letters], following))

    @api.route("POST", "/api/v1/dead-letters/redrive", Needs(OPERATORS), body=Ids, answers=_DONE)
    async def redrive_dead_letters(request: Request) -> Response:
        """Send dead letters back to the main queue."""
        return await _act(request, "redrive")

    @api.route("POST", "/api/v1/dead-letters/purge", Needs(OPERATORS), body=Ids, answers=_DONE)
    async def purge_dead_letters(request: Request) -> Response:
        """Delete dead letters for good, with arguments and history."""
        return await _act(request, "purge")

    async def _act(request: Request, action: str) -> Response:
        principal = principal_of(request)
        with room.in_flight(request, room.settings.body_limit):
            ids = await room.read_json(request, Ids, items=room.settings.batch_limit)
        asked = list(dict.fromkeys(await room.full_ids(ids.task_ids, principal)))
        seen = list(await room.seen(asked, principal))
        store = await room.store()
        answers = dict.fromkeys(asked, ActAnswer.UNKNOWN)
        if seen and action == "redrive":
            answers |= await redrive_tasks(store, seen, room.app.functions)
        elif seen:
            answers |= await purge_tasks(store, seen)
        await room.audit.acted(principal, action, [(task_id, answers[task_id].value) for task_id in seen])
        return answer(ActsOut([ActOut(task_id, told.value) for task_id, told in answers.items()]))
