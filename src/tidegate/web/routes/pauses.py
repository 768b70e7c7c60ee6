"""Routes that pause and resume queues and task functions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tidegate.domain.readers import name_option
from tidegate.limits.pauses import PauseKind
from tidegate.operations.pauses import require_declared
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.control_schemas import PauseResult, PausesOut
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.request_schemas import PauseFunctionRequest, PauseQueueRequest
from tidegate.web.serialize import to_pause_out

_MAY_PAUSE = AccessRule(OPERATORS, all_tenants=True)
_DONE = {200: ResponseSpec("What it did", PauseResult)}


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

    @api.route(
        "GET",
        "/api/v1/pauses",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("The pauses", PausesOut)},
    )
    async def list_pauses(request: Request) -> Response:
        """Return the paused queues and task functions, with who paused each, when and why."""
        pauses = await (await context.store()).list_pauses()
        return json_response(PausesOut([to_pause_out(pause) for pause in pauses]))

    @api.route("POST", "/api/v1/queues/pause", _MAY_PAUSE, body=PauseQueueRequest, responses=_DONE)
    async def pause_queue(request: Request) -> Response:
        """Start no more tasks of a queue until it is resumed; running tasks continue."""
        asked = await context.read_body(request, PauseQueueRequest)
        return await _pause(request, PauseKind.QUEUE, name_option("queue", asked.queue), asked.why)

    @api.route("POST", "/api/v1/queues/resume", _MAY_PAUSE, body=PauseQueueRequest, responses=_DONE)
    async def resume_queue(request: Request) -> Response:
        """Let the tasks of a queue start again."""
        asked = await context.read_body(request, PauseQueueRequest)
        return await _resume(request, PauseKind.QUEUE, asked.queue)

    @api.route("POST", "/api/v1/functions/pause", _MAY_PAUSE, body=PauseFunctionRequest, responses=_DONE)
    async def pause_function(request: Request) -> Response:
        """Start no more tasks of a task function until it is resumed; running tasks continue."""
        asked = await context.read_body(request, PauseFunctionRequest)
        await require_declared(await context.store(), asked.function, context.core.functions)
        return await _pause(request, PauseKind.FUNCTION, asked.function, asked.why)

    @api.route("POST", "/api/v1/functions/resume", _MAY_PAUSE, body=PauseFunctionRequest, responses=_DONE)
    async def resume_function(request: Request) -> Response:
        """Let the tasks of a task function start again."""
        asked = await context.read_body(request, PauseFunctionRequest)
        return await _resume(request, PauseKind.FUNCTION, asked.function)

    async def _pause(request: Request, kind: PauseKind, name: str, why: str) -> Response:
        principal = principal_of(request)
        is_new = await (await context.store()).pause(kind, name, by=principal.name, why=why[:500])
        answer = "paused" if is_new else "was paused already"
        await context.audit.record_action(principal, f"{kind} paused", [(name, answer)], why)
        return json_response(PauseResult(kind.value, name, answer))

    async def _resume(request: Request, kind: PauseKind, name: str) -> Response:
        principal = principal_of(request)
        was_paused = await (await context.store()).resume(kind, name)
        answer = "resumed" if was_paused else "was not paused"
        await context.audit.record_action(principal, f"{kind} resumed", [(name, answer)])
        return json_response(PauseResult(kind.value, name, answer))
