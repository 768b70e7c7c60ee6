"""Send events to the tasks that wait for them."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidegate.errors import TidegateError
from tidegate.operations.send_event import KEPT_SECONDS, send_event
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.problems import Problem, problem_of
from tidegate.web.protected_routes import SUBMITTERS, AccessRule, ProtectedRouter, ResponseSpec, principal_of
from tidegate.web.request_schemas import SendEventRequest
from tidegate.web.schemas import SentEventOut


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

    @api.route(
        "POST",
        "/api/v1/events",
        AccessRule(SUBMITTERS),
        body=SendEventRequest,
        responses={202: ResponseSpec("The event is stored", SentEventOut)},
    )
    async def send_task_event(request: Request) -> Response:
        """Send an event to the tasks that wait for it.

        Every task of the tenant that waits for the name gets it, and so does each that begins to wait while
        it is kept. A token of one tenant sends events of that tenant.
        """
        principal = principal_of(request)
        with context.body_in_flight(request, context.settings.body_limit):
            requested = await context.read_json(request, SendEventRequest)
        tenant = principal.tenant or "" if requested.tenant is None else requested.tenant
        if not principal.may_see(tenant):
            raise Problem("forbidden", "the token belongs to another tenant")
        try:
            delivered = await send_event(
                await context.store(),
                requested.name,
                msgspec.json.decode(requested.data),
                tenant=tenant,
                key=requested.key,
                keep=KEPT_SECONDS if requested.keep_seconds is None else requested.keep_seconds,
            )
        except TidegateError as error:
            raise problem_of(error) from error
        context.audit.record_submit(principal, f"event {requested.name}", f"{delivered} waited")
        return json_response(SentEventOut(requested.name, delivered), 202)
