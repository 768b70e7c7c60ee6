"""List calls that were sent and have no definite answer, and decide about them."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from tidegate.domain.step import DoubtState
from tidegate.operations import doubts
from tidegate.operations.doubts import Decision, DoubtChoice, DoubtFilters
from tidegate.store.rows import ActionStatus
from tidegate.web.api_context import ApiContext, TaskId, json_response
from tidegate.web.doubt_schemas import (
    DoubtOut,
    DoubtPage,
    DoubtResolvedOut,
    ProviderJobsOut,
    ResolveDoubtRequest,
    StepsOut,
    to_doubt_out,
    to_provider_job_out,
    to_step_out,
)
from tidegate.web.problems import Problem
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.routes.tasks import Limit, Text, state_or_any

_LARGEST = 2**53
DoubtId = Annotated[int, Path(ge=1, le=_LARGEST, description="The number of a doubt.")]
AfterDoubt = Annotated[int | None, Query(ge=1, le=_LARGEST, description="The `next` of the previous page.")]
Before = Annotated[
    str | None,
    Query(max_length=64, description="Only calls sent before this time (ISO 8601), or longer ago: `1d`."),
]


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes. A tenant's token sees and decides the doubts of its own tasks only."""
    _add_step_routes(api, context)
    _add_doubt_routes(api, context)
    _add_resolve_route(api, context)


def _add_step_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}/steps",
        AccessRule(READERS),
        responses={200: ResponseSpec("The steps", StepsOut)},
    )
    async def list_steps(request: Request, task_id: TaskId) -> Response:
        """Return the recorded steps of a task, without their results."""
        row = await context.row(task_id, principal_of(request))
        steps = await (await context.store()).read_steps(row.id, with_data=False)
        return json_response(StepsOut([to_step_out(step) for step in steps]))

    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}/provider-jobs",
        AccessRule(READERS),
        responses={200: ResponseSpec("The provider jobs", ProviderJobsOut)},
    )
    async def list_provider_jobs(request: Request, task_id: TaskId) -> Response:
        """Return the provider jobs of a task, without their results."""
        row = await context.row(task_id, principal_of(request))
        jobs = await (await context.store()).list_provider_jobs(row.id)
        return json_response(ProviderJobsOut([to_provider_job_out(job) for job in jobs]))


def _add_doubt_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET", "/api/v1/doubts", AccessRule(READERS), responses={200: ResponseSpec("A page", DoubtPage)}
    )
    async def list_doubts(
        request: Request,
        state: Text = None,
        task: Text = None,
        function: Text = None,
        upstream: Text = None,
        tenant: Text = None,
        before: Before = None,
        after: AfterDoubt = None,
        limit: Limit = 50,
    ) -> Response:
        """Return one page of the calls in doubt, the oldest first. `state`: default `open`, `all` for any."""
        limit = min(limit, context.settings.page_limit)
        filters = DoubtFilters(
            task=task,
            function=function,
            upstream=upstream,
            tenant=principal_of(request).tenant or tenant,
            before=before,
        )
        rows = await doubts.list_doubts(
            await context.store(),
            filters,
            state=state_or_any(state, DoubtState.OPEN),
            after=after,
            limit=limit,
        )
        following = rows[-1].id if len(rows) == limit else None
        return json_response(DoubtPage([to_doubt_out(row) for row in rows], following))

    @api.route(
        "GET",
        "/api/v1/doubts/{doubt_id}",
        AccessRule(READERS),
        responses={200: ResponseSpec("The doubt", DoubtOut)},
    )
    async def get_doubt(request: Request, doubt_id: DoubtId) -> Response:
        """Return one call in doubt: why it is in doubt, and what became of it."""
        store = await context.store()
        return json_response(
            to_doubt_out(await doubts.get_doubt(store, doubt_id, tenant=principal_of(request).tenant))
        )


def _add_resolve_route(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "POST",
        "/api/v1/doubts/{doubt_id}/resolve",
        AccessRule(OPERATORS),
        body=ResolveDoubtRequest,
        responses={200: ResponseSpec("The decision is recorded", DoubtResolvedOut)},
    )
    async def resolve_doubt(request: Request, doubt_id: DoubtId) -> Response:
        """Decide about a call in doubt. Its task goes on when each such call of it is decided."""
        asked = await context.read_body(request, ResolveDoubtRequest)
        principal, store = principal_of(request), await context.store()
        decision = _decision(asked)
        row = await doubts.get_doubt(store, doubt_id, tenant=principal.tenant)
        report = await doubts.resolve(
            store, DoubtChoice([row]), decision, by=principal.name, note=asked.note, tenant=principal.tenant
        )
        for action, target, answer in doubts.audit_facts(decision, report):
            await context.audit.record_action(principal, action, [(target, answer)], asked.note)
        status = report.answers[row.id]
        if status is not ActionStatus.DONE:
            raise Problem("refused", f"doubt {row.id} is not open any more: see GET /api/v1/doubts/{row.id}")
        return json_response(
            DoubtResolvedOut(
                row.id,
                str(status),
                row.task_id,
                row.task_id in report.resumed,
                report.waiting.get(row.task_id, 0),
            )
        )


def _decision(asked: ResolveDoubtRequest) -> Decision:
    """Return what was decided.

    Raises:
        Problem: A result is given without `accept`, or the other way round.
        ArgumentsError: The result cannot be stored.
    """
    has_result = bytes(asked.result) != b""
    if has_result != (asked.decision == "accept"):
        raise Problem("json", "send a result with the decision accept, and only with it")
    if asked.decision == "accept":
        return doubts.accept(json.loads(bytes(asked.result)))
    return doubts.REPEAT if asked.decision == "repeat" else doubts.FAIL
