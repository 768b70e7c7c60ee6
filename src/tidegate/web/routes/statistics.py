"""Routes about the past: counters of tasks and runs, and deaths by reason and fingerprint."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidegate.deadletter import surges
from tidegate.deadletter.surges import SurgeBy, surge_fields
from tidegate.operations import history
from tidegate.operations.history import DeathFilters, StatisticsFilters, Step
from tidegate.operations.statistics import period_fields
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.history_schemas import (
    DeathCountOut,
    DeathCountsOut,
    StatisticsOut,
    StatisticsRowOut,
    SurgesOut,
)
from tidegate.web.protected_routes import READERS, AccessRule, ProtectedRouter, ResponseSpec
from tidegate.web.routes.tasks import Limit, Moment, Text
from tidegate.web.serialize import fields_of


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""
    _add_death_routes(api, context)

    @api.route(
        "GET",
        "/api/v1/statistics",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("Counters by period", StatisticsOut)},
    )
    async def read_statistics(
        request: Request,
        since: Moment = history.DEFAULT_SINCE,
        until: Moment | None = None,
        step: Step = "hour",
        queue: Text = None,
        function: Text = None,
        upstream: Text = None,
    ) -> Response:
        """Return counters of tasks and runs by period, queue, function and upstream, the oldest first."""
        filters = StatisticsFilters(
            since=since, until=until, queue=queue, function=function, upstream=upstream
        )
        found = await history.read_statistics(await context.store(), filters, step=step)
        return json_response(
            StatisticsOut([StatisticsRowOut(at=row.at, **period_fields(row)) for row in found])
        )


def _add_death_routes(api: ProtectedRouter, context: ApiContext) -> None:
    @api.route(
        "GET",
        "/api/v1/dead-letters/statistics",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("Deaths by period", DeathCountsOut)},
    )
    async def count_deaths(
        request: Request,
        since: Moment = history.DEFAULT_SINCE,
        until: Moment | None = None,
        step: Step = "hour",
        queue: Text = None,
        function: Text = None,
        reason: Text = None,
        error_class: Text = None,
        fingerprint: Text = None,
        tenant: Text = None,
    ) -> Response:
        """Return how many tasks died by period, queue, function and reason.

        A redrive does not change the counts.

        With `tenant`: its tasks that are still dead.
        """
        filters = DeathFilters(
            since=since,
            until=until,
            queue=queue,
            function=function,
            reason=reason,
            error_class=error_class,
            fingerprint=fingerprint,
            tenant=tenant,
        )
        found = await history.count_deaths(await context.store(), filters, step=step)
        return json_response(DeathCountsOut([DeathCountOut(**fields_of(row)) for row in found]))

    @api.route(
        "GET",
        "/api/v1/dead-letters/surges",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("Surges", SurgesOut)},
    )
    async def find_surges(
        request: Request,
        by: SurgeBy = "function",
        window: Text = surges.DEFAULT_WINDOW,
        queue: Text = None,
        function: Text = None,
        reason: Text = None,
        fingerprint: Text = None,
        limit: Limit = 50,
    ) -> Response:
        """Compare the deaths of the last hour, or of another window, with the same hours of earlier days."""
        found = await surges.find_surges(
            await context.store(),
            by=by,
            window=window or surges.DEFAULT_WINDOW,
            queue=queue,
            function=function,
            reason=reason,
            fingerprint=fingerprint,
            limit=min(limit, context.settings.page_limit),
        )
        return json_response(msgspec.convert({"surges": [surge_fields(each) for each in found]}, SurgesOut))
