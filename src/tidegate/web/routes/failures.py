"""Routes about groups of failures: what tasks died of, the states of groups, and failures without a rule."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from tidegate.deadletter.daily_summary import read_summary
from tidegate.operations import failure_groups, history
from tidegate.operations.failure_groups import group_fields, unknown_fields
from tidegate.operations.history import GroupFilters, HistoryFilters
from tidegate.policy.failure_state import FailureState
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.history_schemas import (
    DailySummaryOut,
    FailureGroupsOut,
    GroupStateOut,
    UnknownFailuresOut,
)
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.request_schemas import MarkFailureRequest, MuteFailureRequest
from tidegate.web.routes.tasks import Limit, Moment, Text

Digits = Annotated[str, Path(max_length=16, description="A fingerprint, or its first digits.")]

_MAY_MARK = AccessRule(OPERATORS, all_tenants=True)
_MARKED = {200: ResponseSpec("The state", GroupStateOut)}


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""
    _add_group_route(api, context)
    _add_mark_routes(api, context)
    _add_unknown_routes(api, context)
    _add_summary_route(api, context)


def _add_group_route(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET",
        "/api/v1/dead-letters/groups",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("Groups", FailureGroupsOut)},
    )
    async def list_failure_groups(
        request: Request,
        since: Moment = history.DEFAULT_SINCE,
        until: Moment | None = None,
        queue: Text = None,
        function: Text = None,
        tenant: Text = None,
        reason: Text = None,
        error_class: Text = None,
        fingerprint: Text = None,
        state: FailureState | None = None,
        limit: Limit = 50,
    ) -> Response:
        """Return the deaths grouped by fingerprint (error class, message and own frame), the most first.

        With `tenant`, only its tasks that are still dead are counted.
        """
        filters = GroupFilters(
            since=since,
            until=until,
            queue=queue,
            function=function,
            tenant=tenant,
            reason=reason,
            error_class=error_class,
            fingerprint=fingerprint,
        )
        limit = min(limit, context.settings.page_limit)
        found = await failure_groups.list_groups(await context.store(), filters, limit=limit, state=state)
        return json_response(
            msgspec.convert({"groups": [group_fields(each) for each in found]}, FailureGroupsOut)
        )


def _add_mark_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "POST",
        "/api/v1/dead-letters/groups/{fingerprint}/resolve",
        _MAY_MARK,
        body=MarkFailureRequest,
        responses=_MARKED,
    )
    async def resolve_group(request: Request, fingerprint: Digits) -> Response:
        """Mark a group as resolved. The group opens again when another task dies of it."""
        asked = await context.read_body(request, MarkFailureRequest)
        by = principal_of(request).name
        found = await failure_groups.resolve(await context.store(), fingerprint, by=by, note=asked.note)
        return await _marked(request, found, FailureState.RESOLVED, asked.note)

    @api.route(
        "POST",
        "/api/v1/dead-letters/groups/{fingerprint}/mute",
        _MAY_MARK,
        body=MuteFailureRequest,
        responses=_MARKED,
    )
    async def mute_group(request: Request, fingerprint: Digits) -> Response:
        """Mute a group: its deaths are counted, but the alert about a surge of deaths leaves them out."""
        asked = await context.read_body(request, MuteFailureRequest)
        found = await failure_groups.mute(
            await context.store(),
            fingerprint,
            by=principal_of(request).name,
            note=asked.note,
            duration=asked.seconds,
        )
        return await _marked(request, found, FailureState.MUTED, asked.note)

    @api.route("POST", "/api/v1/dead-letters/groups/{fingerprint}/reopen", _MAY_MARK, responses=_MARKED)
    async def reopen_group(request: Request, fingerprint: Digits) -> Response:
        """Open a group that was resolved or muted."""
        await failure_groups.reopen(await context.store(), fingerprint)
        return await _marked(request, fingerprint, FailureState.OPEN, "")

    async def _marked(request: Request, fingerprint: str, state: FailureState, note: str) -> Response:
        answer = [(fingerprint, state.value)]
        await context.audit.record_action(principal_of(request), "failure group", answer, note)
        return json_response(GroupStateOut(fingerprint, state.value))


def _add_summary_route(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET",
        "/api/v1/dead-letters/summary",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("The summary", DailySummaryOut)},
    )
    async def summarise_deaths(request: Request) -> Response:
        """Return the deaths of the last 24 hours and of the day before, surges, and groups to check."""
        store = await context.store()
        found = await read_summary(store, await store.now())
        return json_response(msgspec.convert(asdict(found) | {"text": found.text}, DailySummaryOut))


def _add_unknown_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET",
        "/api/v1/failures/unknown",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("Groups", UnknownFailuresOut)},
    )
    async def list_unknown_failures(
        request: Request,
        since: Moment = history.DEFAULT_SINCE,
        until: Moment | None = None,
        function: Text = None,
        with_reviewed: bool = False,
        limit: Limit = 50,
    ) -> Response:
        """Return the failed attempts that no rule classifies, by fingerprint, the most first.

        The attempts of all stored tasks count, even if the task succeeded later.
        """
        filters = HistoryFilters(since=since, until=until, function=function)
        limit = min(limit, context.settings.page_limit)
        found = await failure_groups.list_unknown(
            await context.store(), filters, limit=limit, with_reviewed=with_reviewed
        )
        return json_response(
            msgspec.convert({"failures": [unknown_fields(each) for each in found]}, UnknownFailuresOut)
        )

    @api.route(
        "POST",
        "/api/v1/failures/unknown/{fingerprint}/reviewed",
        _MAY_MARK,
        body=MarkFailureRequest,
        responses=_MARKED,
    )
    async def mark_failure_reviewed(request: Request, fingerprint: Digits) -> Response:
        """Mark failures without a rule as reviewed."""
        asked = await context.read_body(request, MarkFailureRequest)
        principal = principal_of(request)
        (found,) = await failure_groups.mark_reviewed(
            await context.store(), [fingerprint], by=principal.name, note=asked.note
        )
        await context.audit.record_action(principal, "failure group", [(found, "reviewed")], asked.note)
        return json_response(GroupStateOut(found, "reviewed"))
