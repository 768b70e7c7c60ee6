"""Enqueue, follow, cancel and retry maps."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from tidegate.maps.progress import read_progress
from tidegate.operations import maps
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.map_schemas import (
    CancelMapRequest,
    EnqueuedMapOut,
    MapItemPage,
    MapPage,
    MapRequest,
    MapStatusOut,
    RetriedMapOut,
    RetryMapRequest,
    to_map_item_out,
    to_map_out,
    to_map_status_out,
)
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    SUBMITTERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.request_body import idempotency_key, trace_of_request
from tidegate.web.routes.tasks import After, Limit

AfterIndex = Annotated[int | None, Query(ge=0, description="The `next` of the previous page.")]


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes. A tenant's token sees and changes maps of its tenant only."""
    _add_reading_routes(api, context)
    _add_changing_routes(api, context)


def _add_reading_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route("GET", "/api/v1/maps", AccessRule(READERS), responses={200: ResponseSpec("A page", MapPage)})
    async def list_maps(request: Request, after: After = None, limit: Limit = 50) -> Response:
        """Return one page of the maps, the latest first."""
        limit = min(limit, context.settings.page_limit)
        store = await context.store()
        rows = await store.list_maps(tenant=principal_of(request).tenant, after=after, limit=limit)
        following = rows[-1].id if len(rows) == limit else None
        return json_response(MapPage([to_map_out(row) for row in rows], following))

    @api.route(
        "GET",
        "/api/v1/maps/{map_id}",
        AccessRule(READERS),
        responses={200: ResponseSpec("The map and its progress", MapStatusOut)},
    )
    async def get_map(request: Request, map_id: str) -> Response:
        """Return one map: how many of its items are in each kind of state, and when it is expected to end."""
        store = await context.store()
        row = await maps.get_map(store, map_id, tenant=principal_of(request).tenant)
        return json_response(to_map_status_out(row, await read_progress(store, row)))

    @api.route(
        "GET",
        "/api/v1/maps/{map_id}/items",
        AccessRule(READERS),
        responses={200: ResponseSpec("A page", MapItemPage)},
    )
    async def list_map_items(
        request: Request, map_id: str, after: AfterIndex = None, limit: Limit = 50
    ) -> Response:
        """Return one page of the items of a map, in order. `GET /api/v1/tasks/{id}/result` has a result."""
        limit = min(limit, context.settings.page_limit)
        store = await context.store()
        row = await maps.get_map(store, map_id, tenant=principal_of(request).tenant)
        items = await store.list_map_items(row.id, after=-1 if after is None else after, limit=limit)
        following = items[-1].position if len(items) == limit else None
        return json_response(MapItemPage([to_map_item_out(item) for item in items], following))


def _add_changing_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "POST",
        "/api/v1/maps",
        AccessRule(SUBMITTERS),
        body=MapRequest,
        responses={202: ResponseSpec("Enqueued", EnqueuedMapOut, ("Location",))},
    )
    async def enqueue_map(request: Request) -> Response:
        """Enqueue up to 1,000 items as one map, all or none. Each item becomes one task.

        With a key the request is safe to repeat: it returns the same map.
        """
        principal = principal_of(request)
        limits = context.settings
        with context.body_in_flight(request, limits.batch_body_limit):
            asked = await context.read_json(
                request, MapRequest, items=limits.batch_limit, values=limits.batch_value_limit
            )
            size = sum(memoryview(raw).nbytes for raw in asked.items)
            key, trace = idempotency_key(request), trace_of_request(request)
            prepared = await context.offload.run(
                size, context.submitter.prepare_map, asked, principal, key, trace
            )
            handle = await prepared.function.map(prepared.items, **prepared.settings)
        context.audit.record_submit(
            principal, f"map {handle.id}", "created" if handle.created else "was there"
        )
        location = f"{request.scope.get('root_path', '')}/api/v1/maps/{handle.id}"
        return json_response(
            EnqueuedMapOut(handle.id, bool(handle.created), location), 202, Location=location
        )

    @api.route(
        "POST",
        "/api/v1/maps/{map_id}/cancel",
        AccessRule(OPERATORS),
        body=CancelMapRequest,
        responses={200: ResponseSpec("The map and its progress", MapStatusOut)},
    )
    async def cancel_map(request: Request, map_id: str) -> Response:
        """Cancel every item that is not final. Running items are asked to stop."""
        principal, store = principal_of(request), await context.store()
        asked = await context.read_body(request, CancelMapRequest, default=b"{}")
        row = await maps.get_map(store, map_id, tenant=principal.tenant)
        is_first = await maps.cancel_map(store, row.id, asked.why)
        answer = "cancelled" if is_first else "was ended or cancelled"
        await context.audit.record_action(principal, "cancel map", [(f"map {row.id}", answer)], asked.why)
        row = await maps.get_map(store, row.id)
        return json_response(to_map_status_out(row, await read_progress(store, row)))

    @api.route(
        "POST",
        "/api/v1/maps/{map_id}/retry",
        AccessRule(OPERATORS),
        body=RetryMapRequest,
        responses={200: ResponseSpec("What was sent", RetriedMapOut)},
    )
    async def retry_map(request: Request, map_id: str) -> Response:
        """Send the dead items back to the main queue, with fresh counters."""
        principal, store = principal_of(request), await context.store()
        asked = await context.read_body(request, RetryMapRequest, default=b"{}")
        row = await maps.get_map(store, map_id, tenant=principal.tenant)
        sent, doubts = await maps.retry_failed(store, row.id, repeat_doubts=asked.repeat_doubts)
        await context.audit.record_action(principal, "retry map", [(f"map {row.id}", f"{sent} sent")])
        return json_response(RetriedMapOut(row.id, sent, doubts))
