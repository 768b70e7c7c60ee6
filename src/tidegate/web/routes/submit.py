"""Submitting tasks: stored, answered with their ids, and the web process is free again."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from tidegate.domain.access import Principal
from tidegate.errors import TidegateError
from tidegate.store.protocol import Store
from tidegate.store.rows import StoredResult
from tidegate.web.api_context import ApiContext, json_response, location_of
from tidegate.web.capacity import NoCapacityError
from tidegate.web.problems import Problem
from tidegate.web.protected_routes import SUBMITTERS, AccessRule, ProtectedRouter, ResponseSpec, principal_of
from tidegate.web.request_body import idempotency_key, requested_wait
from tidegate.web.schemas import SubmitManyRequest, SubmitRequest, SubmittedMany, SubmittedOut, TaskResult
from tidegate.web.serialize import to_task_result
from tidegate.web.shutdown import first_completed

RETRY_AFTER = "1"
"""Seconds after which a client that polls may look again."""


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

    @api.route(
        "POST",
        "/api/v1/tasks",
        AccessRule(SUBMITTERS),
        body=SubmitRequest,
        responses={
            202: ResponseSpec("Stored", SubmittedOut, ("Location", "Retry-After")),
            200: ResponseSpec("Final within the time of `Prefer: wait`", TaskResult, ("Location",)),
        },
    )
    async def submit_task(request: Request) -> Response:
        """Store one task.

        The answer comes as soon as the task is on the disk. With `Prefer: wait=N` (20 s at most) it waits
        so long for the end. An `Idempotency-Key` makes a repeat safe: it names the same task.
        """
        principal = principal_of(request)
        with context.body_in_flight(request, context.settings.body_limit):
            submit_request = await context.read_json(request, SubmitRequest)
            size, key = memoryview(submit_request.args).nbytes, idempotency_key(request)
            task = await context.offload.run(size, context.submitter.prepare, submit_request, principal, key)
            stored = await context.core.enqueue_prepared(task)
        context.audit.record_submit(principal, stored.task_id, "created" if stored.created else "was there")
        location = location_of(request, stored.task_id)
        wait = requested_wait(request, context.settings)
        final = await _final_in_time(context, principal, stored.task_id, wait) if wait else None
        if final is not None:
            body = to_task_result(stored.task_id, final, await context.plain(final.data))
            return json_response(body, Location=location, Preference_Applied=f"wait={wait:g}")
        submitted = SubmittedOut(stored.task_id, stored.created, location)
        return json_response(submitted, 202, Location=location, Retry_After=RETRY_AFTER)

    @api.route(
        "POST",
        "/api/v1/tasks/batch",
        AccessRule(SUBMITTERS),
        body=SubmitManyRequest,
        responses={202: ResponseSpec("Stored, all of them", SubmittedMany)},
    )
    async def submit_batch(request: Request) -> Response:
        """Store up to 1,000 tasks, all or none.

        Each is checked as if it came alone; one fault, and nothing is stored.
        """
        principal = principal_of(request)
        if idempotency_key(request) is not None:
            raise Problem("idempotency-key", "a batch has no key of its own: give each task a key")
        items, values = context.settings.batch_limit, context.settings.batch_value_limit
        with context.body_in_flight(request, context.settings.batch_body_limit):
            submit_request = (
                await context.read_json(request, SubmitManyRequest, items=items, values=values)
            ).tasks
            tasks = await context.submitter.prepare_many(submit_request, principal, context.offload)
            store = await context.store()
            stored = await store.enqueue(tasks)
            await context.core.unserved.warn(store, {(task.queue, task.function) for task in tasks})
        for one in stored:
            context.audit.record_submit(principal, one.task_id, "created" if one.created else "was there")
        submitted = [
            SubmittedOut(one.task_id, one.created, location_of(request, one.task_id)) for one in stored
        ]
        return json_response(SubmittedMany(submitted), 202)


async def _final_in_time(
    context: ApiContext, principal: Principal, task_id: str, seconds: float
) -> StoredResult | None:
    """As `wait_until_final`; None too if the store is away: the task is stored, a repeat would be another."""
    try:
        return await wait_until_final(context, principal, task_id, seconds)
    except TidegateError:
        return None


async def wait_until_final(
    context: ApiContext, principal: Principal, task_id: str, seconds: float
) -> StoredResult | None:
    """Return the end of a task if it comes in time.

    None at once where too many requests wait already, and as soon as the server stops.
    """
    try:
        with context.waiters.take(principal):
            store: Store = await context.store()
            try:
                async with asyncio.timeout(seconds):
                    waiting = context.core.task_watcher(store).final(task_id)
                    completed = await first_completed(
                        f"tidegate wait {task_id}", waiting, context.shutdown.wait()
                    )
            except TimeoutError:
                return None
            completed.result()  # the store's error, if it failed
            return await store.get_result(task_id)
    except NoCapacityError:
        return None
