"""Show the sizes of the tables, and forget tasks and tenants."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidegate.operations.forget import forget
from tidegate.store.archive import archive_of
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.protected_routes import (
    ADMINS,
    AccessRule,
    ProtectedRouter,
    ResponseSpec,
    principal_of,
)
from tidegate.web.retention_schemas import ForgetOut, ForgetRequest, StoreSizeOut

_FOR_ADMINS = AccessRule(ADMINS, all_tenants=True)


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes.

    These routes concern the files of all tenants, so no token of one tenant may use them.
    """

    @api.route(
        "GET",
        "/api/v1/database/sizes",
        _FOR_ADMINS,
        responses={200: ResponseSpec("The sizes", StoreSizeOut)},
    )
    async def read_sizes(request: Request) -> Response:
        """Return the size of the database and of each table, the largest first."""
        sizes = await (await context.store()).get_sizes()
        return json_response(msgspec.convert(sizes, StoreSizeOut, from_attributes=True))

    @api.route(
        "POST",
        "/api/v1/forget",
        _FOR_ADMINS,
        body=ForgetRequest,
        responses={200: ResponseSpec("What was forgotten, or with `dry_run` would be", ForgetOut)},
    )
    async def forget_tasks(request: Request) -> Response:
        """Remove a task, or a tenant with all its tasks, from every table, the archive and their files.

        It cannot be undone. The files of the database are rewritten: workers wait meanwhile.
        """
        asked = await context.read_body(request, ForgetRequest)
        principal = principal_of(request)
        report = await forget(
            await context.store(),
            task_id=asked.task_id,
            tenant=asked.tenant,
            archive=archive_of(context.core.retention),
            by=principal.name,
            role=principal.role,
            cancel=asked.cancel,
            dry_run=asked.dry_run,
        )
        return json_response(
            ForgetOut(
                tasks=report.tasks,
                unfinished=report.unfinished,
                other_rows=report.other_rows,
                archived_rows=report.archived_rows,
                not_erased=report.not_erased,
                dry_run=report.is_dry_run,
            )
        )
