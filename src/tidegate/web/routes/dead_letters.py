"""List, redrive and purge dead letters."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tidegate.operations.dead_letters import DeadLetterChoice, purge, redrive
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
from tidegate.web.routes.tasks import After, Labels, Limit, Text, labels_of
from tidegate.web.schemas import ActionOut, ActionsOut, DeadLetterPage
from tidegate.web.serialize import to_dead_letter_out

_DONE = {200: ResponseSpec("The result for each task: `done`, `refused` or `unknown`", ActionsOut)}


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

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
        reason: Text = None,
        error_class: Text = None,
        label: Labels = None,
        after: After = None,
        limit: Limit = 50,
    ) -> Response:
        """Return one page of dead letters, the latest failure first."""
        limit = min(limit, context.settings.page_limit)
        which = TaskFilter(
            queue=queue,
            function=function,
            reason=reason,
            error_class=error_class,
            tenant=principal_of(request).tenant,
            labels=labels_of(label),
        )
        dead_letters = await (await context.store()).list_dead_letters(which, after=after, limit=limit)
        following = dead_letters[-1].task_id if len(dead_letters) == limit else None
        return json_response(
            DeadLetterPage([to_dead_letter_out(dead_letter) for dead_letter in dead_letters], following)
        )

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
            choice = DeadLetterChoice(visible)
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
