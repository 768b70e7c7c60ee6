"""Routes that submit tasks: they enqueue tasks and respond with the ids, without waiting for the end."""

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
from tidegate.web.request_body import idempotency_key, requested_wait, trace_of_request
from tidegate.web.request_schemas import SubmitManyRequest, SubmitRequest
from tidegate.web.schemas import SubmittedMany, SubmittedOut, TaskResult
from tidegate.web.serialize import to_task_result
from tidegate.web.shutdown import first_completed

RETRY_AFTER = "1"
"""Seconds after which a client may poll again."""


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""
    _add_single_submit(api, context)
    _add_batch_submit(api, context)


def _add_single_submit(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "POST",
        "/api/v1/tasks",
        AccessRule(SUBMITTERS),
        body=SubmitRequest,
        responses={
            202: ResponseSpec("Enqueued", SubmittedOut, ("Location", "Retry-After")),
            200: ResponseSpec("The task ended within the time of `Prefer: wait`", TaskResult, ("Location",)),
        },
    )
    async def submit_task(request: Request) -> Response:
        """Enqueue one task.

        The response is sent as soon as the task is on disk. With `Prefer: wait=N` (at most 20 s) the request
        waits that long for the task to end. With an `Idempotency-Key` the request is safe to repeat: it
        returns the same task. The task continues the trace of the header `traceparent`.
        """
        principal = principal_of(request)
        with context.body_in_flight(request, context.settings.body_limit):
            submit_request = await context.read_json(request, SubmitRequest)
            size, key = memoryview(submit_request.args).nbytes, idempotency_key(request)
            task = await context.offload.run(
                size, context.submitter.prepare, submit_request, principal, key, trace_of_request(request)
            )
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


def _add_batch_submit(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "POST",
        "/api/v1/tasks/batch",
        AccessRule(SUBMITTERS),
        body=SubmitManyRequest,
        responses={202: ResponseSpec("All tasks are enqueued", SubmittedMany)},
    )
    async def submit_batch(request: Request) -> Response:
        """Enqueue up to 1,000 tasks, all or none.

        Each task is checked as in a single submit. If any task has an error, no task is enqueued.
        """
        principal = principal_of(request)
        if idempotency_key(request) is not None:
            raise Problem("idempotency-key", "a batch cannot have a key: give each task its own key")
        items, values = context.settings.batch_limit, context.settings.batch_value_limit
        with context.body_in_flight(request, context.settings.batch_body_limit):
            submit_request = (
                await context.read_json(request, SubmitManyRequest, items=items, values=values)
            ).tasks
            tasks = await context.submitter.prepare_many(
                submit_request, principal, context.offload, trace_of_request(request)
            )
            stored = await context.core.enqueue_all(tasks)
        for result in stored:
            context.audit.record_submit(
                principal, result.task_id, "created" if result.created else "was there"
            )
        submitted = [
            SubmittedOut(result.task_id, result.created, location_of(request, result.task_id))
            for result in stored
        ]
        return json_response(SubmittedMany(submitted), 202)


async def _final_in_time(
    context: ApiContext, principal: Principal, task_id: str, seconds: float
) -> StoredResult | None:
    """Return the task's result, or None if it takes too long or the store cannot be reached.

    The task is already stored, so an error here would make the client submit it a second time.
    """
    try:
        return await wait_until_final(context, principal, task_id, seconds)
    except TidegateError:
        return None


async def wait_until_final(
    context: ApiContext, principal: Principal, task_id: str, seconds: float
) -> StoredResult | None:
    """Return the result of a task if it ends in time, otherwise None.

    Return None at once if too many requests are already waiting, and as soon as the server stops.
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
