"""Routes that start, follow, abort and undo operations on dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from tidegate.domain.access import Principal
from tidegate.domain.readers import choice_option
from tidegate.operations import bulk, dead_letters
from tidegate.operations.bulk import PLAIN_SETTINGS, redrive_settings
from tidegate.store.operation_rows import LetterState, OperationRow
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.operation_schemas import (
    OperationOut,
    OperationPage,
    PurgePreviewOut,
    PurgeRequest,
    RedrivenLetterPage,
    RedrivePreviewOut,
    RedriveRequest,
    to_operation_out,
    to_redriven_letter_out,
)
from tidegate.web.protected_routes import (
    OPERATORS,
    READERS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.routes.tasks import After, Limit, Text

_HOW_TO_CHOOSE = "give a filter, or everything: true"
_ONE = {200: ResponseSpec("The operation", OperationOut)}


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes. A tenant's token sees and starts only operations on that tenant's letters."""
    _add_reading_routes(api, context)
    _add_starting_routes(api, context)
    _add_ending_routes(api, context)


def _add_reading_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET",
        "/api/v1/operations",
        AccessRule(READERS),
        responses={200: ResponseSpec("A page", OperationPage)},
    )
    async def list_operations(request: Request, after: After = None, limit: Limit = 50) -> Response:
        """Return one page of the redrives and purges of dead letters, the latest first."""
        limit = min(limit, context.settings.page_limit)
        rows = await (await context.store()).list_operations(
            tenant=principal_of(request).tenant, after=after, limit=limit
        )
        following = rows[-1].id if len(rows) == limit else None
        return json_response(OperationPage([to_operation_out(row) for row in rows], following))

    @api.route("GET", "/api/v1/operations/{operation_id}", AccessRule(READERS), responses=_ONE)
    async def get_operation(request: Request, operation_id: str) -> Response:
        """Return one operation: who started it, its progress, what it waits for, how it ended."""
        row = await bulk.get_operation(
            await context.store(), operation_id, tenant=principal_of(request).tenant
        )
        return json_response(to_operation_out(row))

    @api.route(
        "GET",
        "/api/v1/operations/{operation_id}/letters",
        AccessRule(READERS),
        responses={200: ResponseSpec("A page", RedrivenLetterPage)},
    )
    async def list_letters(
        request: Request, operation_id: str, state: Text = None, after: After = None, limit: Limit = 50
    ) -> Response:
        """Return one page of the letters of a redrive with their outcomes. A purge keeps no letters."""
        limit = min(limit, context.settings.page_limit)
        wanted = None if state is None else LetterState(choice_option("state", state, LetterState))
        store = await context.store()
        row = await bulk.get_operation(store, operation_id, tenant=principal_of(request).tenant)
        letters = await store.list_letters(row.id, state=wanted, after=after, limit=limit)
        following = letters[-1].task_id if len(letters) == limit else None
        return json_response(
            RedrivenLetterPage([to_redriven_letter_out(letter) for letter in letters], following)
        )


def _add_starting_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "POST",
        "/api/v1/operations/redrive",
        AccessRule(OPERATORS),
        body=RedriveRequest,
        responses={
            200: ResponseSpec("With `dry_run`: what the redrive would do", RedrivePreviewOut),
            202: ResponseSpec("The operation has started", OperationOut),
        },
    )
    async def start_redrive(request: Request) -> Response:
        """Start a redrive of the dead letters that match: a canary first, then small batches."""
        asked = await context.read_body(request, RedriveRequest)
        return await _start(context, principal_of(request), asked)

    @api.route(
        "POST",
        "/api/v1/operations/purge",
        AccessRule(OPERATORS),
        body=PurgeRequest,
        responses={
            200: ResponseSpec("With `dry_run`: what it would do", PurgePreviewOut),
            202: ResponseSpec("The operation has started", OperationOut),
        },
    )
    async def start_purge(request: Request) -> Response:
        """Start to delete the dead letters that match, with their arguments and history. It has no undo.

        The purge runs in this server: if the server ends meanwhile, the operation stops a minute later.
        """
        asked = await context.read_body(request, PurgeRequest)
        return await _start_purge(context, principal_of(request), asked)


def _add_ending_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route("POST", "/api/v1/operations/{operation_id}/abort", AccessRule(OPERATORS), responses=_ONE)
    async def abort_operation(request: Request, operation_id: str) -> Response:
        """Stop an operation: it sends or deletes no more letters. Letters that were sent go on."""
        return await _change(request, operation_id, "abort operation", _abort)

    @api.route("POST", "/api/v1/operations/{operation_id}/undo", AccessRule(OPERATORS), responses=_ONE)
    async def undo_operation(request: Request, operation_id: str) -> Response:
        """Stop a redrive, and turn the letters that have not started back into dead letters."""
        return await _change(request, operation_id, "undo operation", _undo)

    async def _change(
        request: Request,
        operation_id: str,
        action: str,
        change: Callable[[Store, str, str], Awaitable[OperationRow]],
    ) -> Response:
        principal, store = principal_of(request), await context.store()
        row = await bulk.get_operation(store, operation_id, tenant=principal.tenant)
        row = await change(store, row.id, principal.name)
        await context.audit.record_action(principal, action, [(row.id, str(row.state))])
        return json_response(to_operation_out(row))


async def _abort(store: Store, operation_id: str, by: str) -> OperationRow:
    return await bulk.abort(store, operation_id, by=by)


async def _undo(store: Store, operation_id: str, by: str) -> OperationRow:
    return await bulk.undo(store, operation_id, by=by)


async def _chosen(store: Store, principal: Principal, asked: PurgeRequest) -> TaskFilter:
    """Return the filter; with a token of a tenant it matches that tenant's letters only.

    Raises:
        UsageError: Nothing chooses, or both a filter and `everything`.
    """
    filters = asked.filters
    dead_letters.require_one_choice(None, filters, everything=asked.everything, fix=_HOW_TO_CHOOSE)
    if principal.tenant is not None:
        filters["tenant"] = principal.tenant
    return await dead_letters.task_filter(store, filters)


async def _start_purge(context: ApiContext, principal: Principal, asked: PurgeRequest) -> Response:
    store = await context.store()
    which = await _chosen(store, principal, asked)
    if asked.dry_run:
        return json_response(PurgePreviewOut(await store.count_dead_letters(which)))
    row = await bulk.start_purge(
        store, which, by=principal.name, tenant=principal.tenant, expect=asked.expect
    )
    await context.audit.record_action(principal, "purge", [(f"operation {row.id}", str(row.state))])
    context.background.start(bulk.run_purge(store, row), f"purge {row.id}")
    return json_response(to_operation_out(row), 202)


async def _start(context: ApiContext, principal: Principal, asked: RedriveRequest) -> Response:
    store = await context.store()
    which = await _chosen(store, principal, asked)
    settings = redrive_settings(
        to_queue=asked.to_queue,
        keep_attempts=asked.keep_attempts,
        repeat_doubts=asked.repeat_doubts,
        stop_above=asked.stop_above,
        canary_within=PLAIN_SETTINGS.canary_seconds if asked.canary_within is None else asked.canary_within,
    )
    if asked.dry_run:
        found = await bulk.preview_redrive(store, which, settings)
        return json_response(RedrivePreviewOut(found.letters, found.in_doubt, found.canary))
    row = await bulk.start_redrive(
        store,
        which,
        by=principal.name,
        own=context.core.functions,
        settings=settings,
        tenant=principal.tenant,
        expect=asked.expect,
    )
    await context.audit.record_action(principal, "redrive", [(f"operation {row.id}", str(row.state))])
    return json_response(to_operation_out(row), 202)
