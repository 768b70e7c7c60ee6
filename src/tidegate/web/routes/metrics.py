"""The route of the metrics for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tidegate.monitor.exposition import expose
from tidegate.monitor.reading import read_metrics
from tidegate.web.api_context import ApiContext
from tidegate.web.problems import NO_STORE
from tidegate.web.protected_routes import READERS, AccessRule, ProtectedRouter, ResponseSpec


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the route."""

    @api.route(
        "GET",
        "/metrics",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("The metrics", str)},
        media_type="text/plain",
    )
    async def metrics(request: Request) -> Response:
        """Return the metrics of the whole installation in Prometheus' text format."""
        reading = await read_metrics(await context.store(), context.core.pools)
        body, content_type = expose(reading, request.headers.get("accept", ""))
        return Response(body, 200, NO_STORE | {"Content-Type": content_type})
