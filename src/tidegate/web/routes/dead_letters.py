"""Routes that list, export, redrive and purge dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tidegate.operations.bulk import IMMEDIATE_IDS
from tidegate.operations.dead_export import read_letters
from tidegate.operations.dead_letters import DeadLetterChoice, DeadLetterFilters, purge, redrive, task_filter
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, TaskFilter
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.request_schemas import TaskIdsRequest
from tidegate.web.routes.tasks import After, Labels, Limit, Moment, Text, labels_of
from tidegate.web.schemas import ActionOut, ActionsOut, DeadLetterPage
from tidegate.web.serialize import to_dead_letter_out

_DONE = {200: ResponseSpec("The result for each task: `done`, `refused` or `unknown`", ActionsOut)}


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""
    _add_list_route(api, context)
    _add_export_route(api, context)
    _add_action_routes(api, context)


async def _filter_of(
    store: Store, request: Request, labels: list[str] | None, **filters: str | None
) -> TaskFilter:
    """Return the filter; a tenant's token sees only dead letters of that tenant."""
    filters["tenant"] = principal_of(request).tenant or filters.get("tenant")
    given = DeadLetterFilters(labels=labels_of(labels), **filters)  # type: ignore[typeddict-item]
    return await task_filter(store, given)


def _add_list_route(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET",
        "/api/v1/dead-letters",
        AccessRule(READERS),
        responses={200: ResponseSpec("A page", DeadLetterPage)},
    )
    async def list_dead_letters(
        request: Request,
        queue: Text = None,
        function: Text = None,
        tenant: Text = None,
        reason: Text = None,
        error_class: Text = None,
        fingerprint: Text = None,
        since: Moment | None = None,
        before: Moment | None = None,
        label: Labels = None,
        after: After = None,
        limit: Limit = 50,
    ) -> Response:
        """Return one page of dead letters, the latest failure first."""
        limit, store = min(limit, context.settings.page_limit), await context.store()
        which = await _filter_of(
            store,
            request,
            label,
            queue=queue,
            function=function,
            tenant=tenant,
            reason=reason,
            error_class=error_class,
            fingerprint=fingerprint,
            since=since,
            before=before,
        )
        dead_letters = await store.list_dead_letters(which, after=after, limit=limit)
        following = dead_letters[-1].task_id if len(dead_letters) == limit else None
        return json_response(
            DeadLetterPage([to_dead_letter_out(dead_letter) for dead_letter in dead_letters], following)
        )


def _add_export_route(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET",
        "/api/v1/dead-letters/export",
        AccessRule(READERS),
        responses={200: ResponseSpec("Lines of JSON (NDJSON), one `DeadLetterOut` each")},
    )
    async def export_dead_letters(
        request: Request,
        queue: Text = None,
        function: Text = None,
        tenant: Text = None,
        reason: Text = None,
        error_class: Text = None,
        fingerprint: Text = None,
        since: Moment | None = None,
        before: Moment | None = None,
        label: Labels = None,
    ) -> Response:
        """Return all matching dead letters as lines of JSON, the latest failure first.

        A response that ends without a line `{"complete":true,…}` was cut off.
        """
        store = await context.store()
        which = await _filter_of(
            store,
            request,
            label,
            queue=queue,
            function=function,
            tenant=tenant,
            reason=reason,
            error_class=error_class,
            fingerprint=fingerprint,
            since=since,
            before=before,
        )
        return StreamingResponse(_lines(store, which), media_type="application/x-ndjson")


async def _lines(store: Store, which: TaskFilter) -> AsyncIterator[bytes]:
    count = 0
    async for letter in read_letters(store, which):
        yield msgspec.json.encode(to_dead_letter_out(letter)) + b"\n"
        count += 1
    yield msgspec.json.encode({"complete": True, "count": count}) + b"\n"


def _add_action_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "POST", "/api/v1/dead-letters/redrive", AccessRule(OPERATORS), body=TaskIdsRequest, responses=_DONE
    )
    async def redrive_dead_letters(request: Request) -> Response:
        """Send dead letters back to their queue."""
        return await _apply(request, "redrive")

    @api.route(
        "POST", "/api/v1/dead-letters/purge", AccessRule(OPERATORS), body=TaskIdsRequest, responses=_DONE
    )
    async def purge_dead_letters(request: Request) -> Response:
        """Delete dead letters with their arguments and history."""
        return await _apply(request, "purge")

    async def _apply(request: Request, action: str) -> Response:
        principal = principal_of(request)
        ids = await context.read_body(request, TaskIdsRequest, items=context.settings.batch_limit)
        task_ids = await context.full_ids(ids.task_ids, principal)
        visible = list(await context.visible_tasks(task_ids, principal))
        store = await context.store()
        answers = dict.fromkeys(task_ids, ActionStatus.UNKNOWN)
        if visible and action == "redrive":
            for start in range(0, len(visible), IMMEDIATE_IDS):
                choice = DeadLetterChoice(visible[start : start + IMMEDIATE_IDS])
                report = await redrive(
                    store, choice, context.core.functions, by=principal.name, tenant=principal.tenant
                )
                answers |= report.answers
        elif visible:
            choice = DeadLetterChoice(visible)
            report = await purge(store, choice, by=principal.name, tenant=principal.tenant)
            answers |= report.answers
        await context.audit.record_action(
            principal, action, [(task_id, answers[task_id].value) for task_id in visible]
        )
        return json_response(
            ActionsOut([ActionOut(task_id, status.value) for task_id, status in answers.items()])
        )
