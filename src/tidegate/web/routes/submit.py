"""Submitting tasks: stored, answered with their ids, and the web process is free again."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from tidegate.domain.access import Principal
from tidegate.errors import TidegateError
from tidegate.store.protocol import Store
from tidegate.store.rows import StoredResult
from tidegate.web.bodies import idempotency_key, wanted_wait
from tidegate.web.closing import first_of
from tidegate.web.guard import SUBMITTERS, Answer, Guarded, Needs, principal_of
from tidegate.web.problems import Problem
from tidegate.web.room import Room, answer, location_of
from tidegate.web.shares import NoPlaceError
from tidegate.web.shown import result_of
from tidegate.web.wire import Submit, SubmitMany, Submitted, SubmittedMany, TaskResult

RETRY_AFTER = "1"
"""Seconds after which a client that polls may look again."""


def add(api: Guarded, room: Room) -> None:
    """Register the routes."""

    @api.route(
        "POST",
        "/api/v1/tasks",
        Needs(SUBMITTERS),
        body=Submit,
        answers={
            202: Answer("Stored", Submitted, ("Location", "Retry-After")),
            200: Answer("Final within the time of `Prefer: wait`", TaskResult, ("Location",)),
        },
    )
    async def submit_task(request: Request) -> Response:
        """Store one task.

        The answer comes as soon as the task is on the disk. With `Prefer: wait=N` (20 s at most) it waits
        so long for the end. An `Idempotency-Key` makes a repeat safe: it names the same task.
        """
        principal = principal_of(request)
        with room.in_flight(request, room.settings.body_limit):
            asked = await room.read_json(request, Submit)
            size, key = memoryview(asked.args).nbytes, idempotency_key(request)
            task = await room.offload.run(size, room.submitter.prepare, asked, principal, key)
            stored = await room.app.enqueue_prepared(task)
        room.audit.submitted(principal, stored.task_id, "created" if stored.created else "was there")
        where = location_of(request, stored.task_id)
        wait = wanted_wait(request, room.settings)
        ended = await _end_in_time(room, principal, stored.task_id, wait) if wait else None
        if ended is not None:
            shown = result_of(stored.task_id, ended, await room.plain(ended.data))
            return answer(shown, Location=where, Preference_Applied=f"wait={wait:g}")
        told = Submitted(stored.task_id, stored.created, where)
        return answer(told, 202, Location=where, Retry_After=RETRY_AFTER)

    @api.route(
        "POST",
        "/api/v1/tasks/batch",
        Needs(SUBMITTERS),
        body=SubmitMany,
        answers={202: Answer("Stored, all of them", SubmittedMany)},
    )
    async def submit_batch(request: Request) -> Response:
        """Store up to 1,000 tasks, all or none.

        Each is checked as if it came alone; one fault, and nothing is stored.
        """
        principal = principal_of(request)
        if idempotency_key(request) is not None:
            raise Problem("idempotency-key", "a batch has no key of its own: give each task a key")
        items, values = room.settings.batch_limit, room.settings.batch_value_limit
        with room.in_flight(request, room.settings.batch_body_limit):
            asked = (await room.read_json(request, SubmitMany, items=items, values=values)).tasks
            tasks = await room.submitter.prepare_many(asked, principal, room.offload)
            store = await room.store()
            stored = await store.enqueue(tasks)
            await room.app.unserved.look(store, {(task.queue, task.function) for task in tasks})
        for one in stored:
            room.audit.submitted(principal, one.task_id, "created" if one.created else "was there")
        told = [Submitted(one.task_id, one.created, location_of(request, one.task_id)) for one in stored]
        return answer(SubmittedMany(told), 202)


async def _end_in_time(room: Room, principal: Principal, task_id: str, seconds: float) -> StoredResult | None:
    """As `wait_for_end`; None too if the store is away: the task is stored, a repeat would be another."""
    try:
        return await wait_for_end(room, principal, task_id, seconds)
    except TidegateError:
        return None


async def wait_for_end(room: Room, principal: Principal, task_id: str, seconds: float) -> StoredResult | None:
    """Return the end of a task if it comes in time.

    None at once where too many requests wait already, and as soon as the server stops.
    """
    try:
        with room.waiters.take(principal):
            store: Store = await room.store()
            try:
                async with asyncio.timeout(seconds):
                    final = room.app.task_watch(store).final(task_id)
                    over = await first_of(f"tidegate wait {task_id}", final, room.closing.wait())
            except TimeoutError:
                return None
            over.result()  # the store's error, if it failed
            return await store.result(task_id)
    except NoPlaceError:
        return None
