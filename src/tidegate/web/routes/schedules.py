"""Routes that show, add, edit, pause, run and preview schedules."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import AfterValidator
from starlette.requests import Request
from starlette.responses import Response

from tidegate.application.task_schedule import changed_task_fields, read_task_options
from tidegate.operations import schedules as operations
from tidegate.schedule.options import read_rule, schedule_name_option
from tidegate.schedule.scheduled_tasks import scheduled_task
from tidegate.store.schedule_rows import ScheduleRow
from tidegate.web.api_context import ApiContext, json_response, location_of
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.request_schemas import ScheduleChangeRequest, ScheduleRequest
from tidegate.web.routes.tasks import Limit
from tidegate.web.schedule_schemas import (
    PreviewOut,
    ScheduleOut,
    SchedulePage,
    ScheduleRun,
    TicksOut,
    to_planned_tick_out,
    to_schedule_out,
    to_tick_out,
)
from tidegate.web.submit import stored_payload

_MAY_READ = AccessRule(READERS, all_tenants=True)
_MAY_CHANGE = AccessRule(OPERATORS, all_tenants=True)
_ONE = {200: ResponseSpec("The schedule", ScheduleOut)}
_RENAMED = {
    "timeout_seconds": "timeout",
    "total_timeout_seconds": "total_timeout",
    "deadline_seconds": "deadline",
}


def _name(value: str) -> str:
    return schedule_name_option("name", value)


Name = Annotated[str, Path(description="The schedule's name."), AfterValidator(_name)]
AfterName = Annotated[str, Query(max_length=128, description="The `next` of the previous page.")]
Before = Annotated[float | None, Query(description="The `next` of the previous page.")]
Count = Annotated[int, Query(ge=1, le=operations.MOST_PREVIEWED, description="How many ticks.")]


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""
    _add_reads(api, context)
    _add_changes(api, context)
    _add_actions(api, context)


def _add_reads(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes that show schedules."""

    @api.route("GET", "/api/v1/schedules", _MAY_READ, responses={200: ResponseSpec("A page", SchedulePage)})
    async def list_schedules(request: Request, after: AfterName = "", limit: Limit = 50) -> Response:
        """Return one page of schedules with their latest ticks, by name."""
        limit = min(limit, context.settings.page_limit)
        rows = await (await context.store()).list_schedules(after=after, limit=limit)
        following = rows[-1].name if len(rows) == limit else None
        return json_response(SchedulePage([to_schedule_out(row) for row in rows], following))

    @api.route("GET", "/api/v1/schedules/{name}", _MAY_READ, responses=_ONE)
    async def get_schedule(request: Request, name: Name) -> Response:
        """Return one schedule with its latest tick."""
        return json_response(to_schedule_out(await operations.find_schedule(await context.store(), name)))

    @api.route(
        "GET",
        "/api/v1/schedules/{name}/preview",
        _MAY_READ,
        responses={200: ResponseSpec("The ticks", PreviewOut)},
    )
    async def preview_schedule(request: Request, name: Name, count: Count = 5) -> Response:
        """Return the next ticks of a schedule, marked where the clocks change, as if it were not paused."""
        ticks = await operations.preview_schedule(await context.store(), name, count)
        return json_response(PreviewOut([to_planned_tick_out(tick) for tick in ticks]))

    @api.route(
        "GET",
        "/api/v1/schedules/{name}/ticks",
        _MAY_READ,
        responses={200: ResponseSpec("A page", TicksOut)},
    )
    async def list_ticks(request: Request, name: Name, before: Before = None, limit: Limit = 50) -> Response:
        """Return the outcomes of a schedule's ticks, the newest first."""
        limit, store = min(limit, context.settings.page_limit), await context.store()
        await operations.find_schedule(store, name)
        rows = await store.list_ticks(name, before_at=before, limit=limit)
        following = rows[-1].at if len(rows) == limit else None
        return json_response(TicksOut([to_tick_out(row) for row in rows], following))


def _add_changes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes that add, edit and remove schedules."""

    @api.route("POST", "/api/v1/schedules", _MAY_CHANGE, body=ScheduleRequest, responses=_ONE)
    async def add_schedule(request: Request) -> Response:
        """Add a schedule. The first tick of the schedule is the next one from now.

        Adding the same schedule again changes nothing.
        """
        asked = await context.read_body(request, ScheduleRequest)
        function = context.core.function(asked.task)
        given = _settings(asked)
        rule, options = read_rule(asked.when, given), read_task_options(given)
        args, kwargs = function.signature.load(stored_payload(asked.args))
        task = scheduled_task(function.using(**options).prepare(*args, **kwargs).new_task)
        name = schedule_name_option("name", asked.name or function.spec.name)
        row = await operations.add_schedule(await context.store(), name, rule, task)
        return await _changed(context, request, "schedule added", row)

    @api.route("PATCH", "/api/v1/schedules/{name}", _MAY_CHANGE, body=ScheduleChangeRequest, responses=_ONE)
    async def edit_schedule(request: Request, name: Name) -> Response:
        """Change a schedule that a person added. The change itself fires no tick."""
        asked = await context.read_body(request, ScheduleChangeRequest)
        given, store = _settings(asked), await context.store()
        if given.get("not_later_than") == "none":
            given["not_later_than"] = None
        fields = changed_task_fields(None, given)
        if bytes(asked.args) not in (b"", b"null"):
            row = await operations.find_schedule(store, name)
            function = context.core.function(row.task.function)
            args, kwargs = function.signature.load(stored_payload(asked.args))
            made = scheduled_task(function.prepare(*args, **kwargs).new_task)
            fields |= {"args": made.args, "codec_tag": made.codec_tag, "fingerprint": made.fingerprint}
        edited = await operations.edit_schedule(
            store, name, when=asked.when, settings=given, task_fields=fields
        )
        return await _changed(context, request, "schedule changed", edited)

    @api.route("DELETE", "/api/v1/schedules/{name}", _MAY_CHANGE, responses={204: ResponseSpec("Removed")})
    async def remove_schedule(request: Request, name: Name) -> Response:
        """Remove a schedule that a person added.

        The tasks of the schedule and the record of its ticks are kept.
        """
        await operations.remove_schedule(await context.store(), name)
        await context.audit.record_action(principal_of(request), "schedule removed", [(name, "done")])
        return Response(status_code=204)


def _add_actions(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes that pause, resume and run schedules."""

    @api.route("POST", "/api/v1/schedules/{name}/pause", _MAY_CHANGE, responses=_ONE)
    async def pause_schedule(request: Request, name: Name) -> Response:
        """Stop the ticks of a schedule until it is resumed, also over deploys."""
        row = await operations.pause_schedule(await context.store(), name)
        return await _changed(context, request, "schedule paused", row)

    @api.route("POST", "/api/v1/schedules/{name}/resume", _MAY_CHANGE, responses=_ONE)
    async def resume_schedule(request: Request, name: Name) -> Response:
        """Let a paused schedule tick again, from its next regular tick on."""
        row = await operations.resume_schedule(await context.store(), name)
        return await _changed(context, request, "schedule resumed", row)

    @api.route(
        "POST",
        "/api/v1/schedules/{name}/run",
        _MAY_CHANGE,
        responses={202: ResponseSpec("Enqueued", ScheduleRun, ("Location",))},
    )
    async def run_schedule(request: Request, name: Name) -> Response:
        """Enqueue the task of a schedule now, even if the schedule is paused.

        The next tick of the schedule stays the same.
        """
        task = await operations.run_schedule(await context.store(), name, context.core.next_id)
        await context.audit.record_action(principal_of(request), "schedule run", [(name, task.id)])
        location = location_of(request, task.id)
        return json_response(ScheduleRun(name, task.id, location), 202, Location=location)


async def _changed(context: ApiContext, request: Request, action: str, row: ScheduleRow) -> Response:
    await context.audit.record_action(principal_of(request), action, [(row.name, "done")])
    return json_response(to_schedule_out(row))


def _settings(asked: ScheduleRequest | ScheduleChangeRequest) -> dict[str, Any]:
    """Return the settings that a request gives, by their names in Python."""
    left_out = {"task", "when", "name", "args"}
    values = {field: getattr(asked, field) for field in asked.__struct_fields__ if field not in left_out}
    return {_RENAMED.get(field, field): value for field, value in values.items() if value is not None}
