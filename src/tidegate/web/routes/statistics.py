"""Counters of tasks and runs over time."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response

from tidegate.operations import history
from tidegate.operations.history import StatisticsFilters, Step
from tidegate.operations.statistics import summary
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.history_schemas import StatisticsOut, StatisticsRowOut
from tidegate.web.protected_routes import READERS, AccessRule, ProtectedRouter, ResponseSpec
from tidegate.web.routes.tasks import Moment, Text


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

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
        rows = []
        for row in found:
            sums = summary(row.at, [row])
            rows.append(
                StatisticsRowOut(
                    at=row.at,
                    queue=row.queue,
                    function=row.function,
                    upstream=row.upstream or None,
                    run_p50=sums.run_p50,
                    run_p95=sums.run_p95,
                    wait_p50=sums.wait_p50,
                    wait_p95=sums.wait_p95,
                    **asdict(row.counts),
                )
            )
        return json_response(StatisticsOut(rows))
