"""Routes that list the task functions, the queues, the workers and the audit log."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tidegate.operations.overview import read_queues
from tidegate.task import TaskFunction
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.protected_routes import (
    ADMINS,
    ALL_ROLES,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
)
from tidegate.web.routes.tasks import After, Limit
from tidegate.web.schemas import AuditPage, FunctionOut, FunctionsOut, QueuesOut, WorkersOut
from tidegate.web.serialize import to_audit_out, to_queue_out, to_worker_out


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

    @api.route(
        "GET",
        "/api/v1/functions",
        AccessRule(ALL_ROLES),
        responses={200: ResponseSpec("The functions", FunctionsOut)},
    )
    async def list_functions(request: Request) -> Response:
        """Return the task functions that may be submitted, with the JSON Schema of their arguments."""
        functions = context.core.functions.values()
        return json_response(
            FunctionsOut(
                [to_function_out(each) for each in sorted(functions, key=lambda each: each.spec.name)]
            )
        )

    @api.route(
        "GET",
        "/api/v1/queues",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("Queues", QueuesOut)},
    )
    async def list_queues(request: Request) -> Response:
        """Return the statistics of each queue."""
        store = await context.store()
        return json_response(QueuesOut([to_queue_out(stats) for stats in await read_queues(store)]))

    @api.route(
        "GET",
        "/api/v1/workers",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("Workers", WorkersOut)},
    )
    async def list_workers(request: Request) -> Response:
        """Return the pool processes that are live, or whose tasks are not requeued yet."""
        store = await context.store()
        now = await store.now()
        return json_response(WorkersOut([to_worker_out(row, now) for row in await store.list_workers()]))

    @api.route(
        "GET",
        "/api/v1/audit",
        AccessRule(ADMINS, all_tenants=True),
        responses={200: ResponseSpec("A page", AuditPage)},
    )
    async def list_audit(request: Request, after: After = None, limit: Limit = 50) -> Response:
        """Return the audit log: who changed what, the newest entry first. Entries are kept for a year."""
        limit = min(limit, context.settings.page_limit)
        entries = await (await context.store()).list_audit_entries(after=after, limit=limit)
        following = entries[-1].id if len(entries) == limit else None
        return json_response(AuditPage([to_audit_out(entry) for entry in entries], following))


def to_function_out(function: TaskFunction[..., object, object]) -> FunctionOut:
    """Return a task function as the API shows it."""
    spec, signature = function.spec, function.signature
    first_line = (function.__doc__ or "").strip().partition("\n")[0]
    return FunctionOut(
        spec.name, spec.queue, spec.priority.word, signature.text, first_line, signature.schema()
    )
