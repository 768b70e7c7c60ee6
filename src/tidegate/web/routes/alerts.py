"""Routes that list alerts, mute them, and send a test message to the sinks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from tidegate.alerts.settings import AlertSettings
from tidegate.domain.readers import positive_option
from tidegate.operations.alerts import read_alerts, require_rule, try_sinks
from tidegate.web.alert_schemas import (
    AlertsOut,
    MuteRequest,
    MuteResult,
    SinkTrialsOut,
    TrySinksRequest,
    to_alerts_out,
    to_trials_out,
)
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)

_MAY_MUTE = AccessRule(OPERATORS, all_tenants=True)
_DONE = {200: ResponseSpec("What it did", MuteResult)}


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

    @api.route(
        "GET",
        "/api/v1/alerts",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("The alerts", AlertsOut)},
    )
    async def list_alerts(
        request: Request,
        ended: Annotated[int, Query(ge=0, le=200, description="Also return this many ended alerts.")] = 0,
    ) -> Response:
        """Return the open alerts and the mutes."""
        return json_response(to_alerts_out(await read_alerts(await context.store(), ended=ended)))

    @api.route("POST", "/api/v1/alerts/mute", _MAY_MUTE, body=MuteRequest, responses=_DONE)
    async def mute_alerts(request: Request) -> Response:
        """Send nothing about a rule and subject, for a time or until they are unmuted."""
        asked = await context.read_body(request, MuteRequest)
        require_rule(asked.rule)
        seconds = None if asked.seconds is None else positive_option("seconds", asked.seconds)
        principal = principal_of(request)
        await (await context.store()).mute_alerts(
            asked.rule, asked.subject, seconds, by=principal.name, why=asked.why[:500]
        )
        target = f"{asked.rule} {asked.subject}"
        await context.audit.record_action(principal, "alert muted", [(target, "muted")], asked.why)
        return json_response(MuteResult(asked.rule, asked.subject, "muted"))

    @api.route("POST", "/api/v1/alerts/unmute", _MAY_MUTE, body=MuteRequest, responses=_DONE)
    async def unmute_alerts(request: Request) -> Response:
        """End a mute. Name the rule and subject with which it was made."""
        asked = await context.read_body(request, MuteRequest)
        principal = principal_of(request)
        was_muted = await (await context.store()).unmute_alerts(asked.rule, asked.subject)
        answer = "unmuted" if was_muted else "was not muted"
        target = f"{asked.rule} {asked.subject}"
        await context.audit.record_action(principal, "alert unmuted", [(target, answer)])
        return json_response(MuteResult(asked.rule, asked.subject, answer))

    @api.route(
        "POST",
        "/api/v1/alerts/test",
        _MAY_MUTE,
        body=TrySinksRequest,
        responses={200: ResponseSpec("The outcomes of the messages", SinkTrialsOut)},
    )
    async def test_alert_sinks(request: Request) -> Response:
        """Send a test message to the sinks of this process's configuration now."""
        asked = await context.read_body(request, TrySinksRequest, default=b"{}")
        principal = principal_of(request)
        settings = context.settings.alerts or AlertSettings()
        trials = await try_sinks(await context.store(), settings, asked.sink)
        tried = [(each.sink, each.error or "delivered") for each in trials]
        await context.audit.record_action(principal, "alert sink tried", tried)
        return json_response(to_trials_out(trials))
