"""Routes that change workers, pools and rate limits of a running system."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tidegate.domain.readers import whole_option
from tidegate.operations import workers
from tidegate.operations.function_limits import set_function_limit
from tidegate.operations.pauses import require_declared
from tidegate.store.controls import ControlRow
from tidegate.store.protocol import Store
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.control_schemas import (
    ControlOut,
    ControlReportOut,
    ControlResult,
    ControlsOut,
    RateLimitOut,
)
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.request_schemas import RateLimitRequest, ReloadRequest, SetPoolRequest, WorkerRequest

_MAY_CHANGE = AccessRule(OPERATORS, all_tenants=True)
_STORED = {202: ResponseSpec("The change is stored, and applied within about a second", ControlResult)}


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

    @api.route(
        "GET",
        "/api/v1/controls",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("The orders, and the reports of workers", ControlsOut)},
    )
    async def list_controls(request: Request) -> Response:
        """Return the orders to workers and pools, and who has applied each order."""
        store = await context.store()
        return json_response(ControlsOut([await _to_out(store, row) for row in await store.list_controls()]))

    @api.route("POST", "/api/v1/workers/quiet", _MAY_CHANGE, body=WorkerRequest, responses=_STORED)
    async def quiet_worker(request: Request) -> Response:
        """Let a worker or process claim no more tasks; it finishes running tasks and stays up."""
        asked = await context.read_body(request, WorkerRequest)
        by = principal_of(request).name
        return _stored(await workers.quiet(await context.store(), asked.worker, by=by, why=asked.why[:500]))

    @api.route("POST", "/api/v1/workers/resume", _MAY_CHANGE, body=WorkerRequest, responses=_STORED)
    async def resume_worker(request: Request) -> Response:
        """Let a quiet worker or process claim tasks again."""
        asked = await context.read_body(request, WorkerRequest)
        by = principal_of(request).name
        return _stored(await workers.resume(await context.store(), asked.worker, by=by, why=asked.why[:500]))

    @api.route("POST", "/api/v1/workers/reload", _MAY_CHANGE, body=ReloadRequest, responses=_STORED)
    async def reload_workers(request: Request) -> Response:
        """Restart every process of a worker, or of all workers, with the code on its machine."""
        asked = await context.read_body(request, ReloadRequest, default=b"{}")
        by = principal_of(request).name
        return _stored(await workers.reload(await context.store(), asked.worker, by=by, why=asked.why[:500]))

    @api.route("POST", "/api/v1/pools/set", _MAY_CHANGE, body=SetPoolRequest, responses=_STORED)
    async def set_pool(request: Request) -> Response:
        """Change how many tasks each process of a pool runs at once."""
        asked = await context.read_body(request, SetPoolRequest)
        number = None if asked.concurrency is None else whole_option("concurrency", asked.concurrency)
        by, store = principal_of(request).name, await context.store()
        return _stored(await workers.set_concurrency(store, asked.pool, number, by=by, why=asked.why[:500]))

    @api.route(
        "POST",
        "/api/v1/functions/rate-limit",
        _MAY_CHANGE,
        body=RateLimitRequest,
        responses={200: ResponseSpec("The limit that is in force now", RateLimitOut)},
    )
    async def set_rate_limit(request: Request) -> Response:
        """Change the rate limit of a task function for all workers, at once."""
        asked, store = await context.read_body(request, RateLimitRequest), await context.store()
        await require_declared(store, asked.function, context.core.functions)
        by = principal_of(request).name
        limit = await set_function_limit(store, asked.function, asked.rate, by=by, why=asked.why[:500])
        return json_response(RateLimitOut(asked.function, limit))


def _stored(change: workers.Change) -> Response:
    return json_response(
        ControlResult(change.kind.value, change.name, change.version, sorted(change.reporters)), 202
    )


async def _to_out(store: Store, row: ControlRow) -> ControlOut:
    reports = [
        ControlReportOut(each.reporter, each.version, each.answer, each.reported_at)
        for each in await store.list_control_reports(row.kind, row.name)
    ]
    return ControlOut(
        row.kind.value, row.name, row.value, row.version, row.changed_at, row.changed_by, row.why, reports
    )
