"""The route that reports how many workers a pool should have, for an autoscaler."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from tidegate.monitor.scaling import decide_scaling, scaling_of
from tidegate.policy.autoscale import DEFAULT_TARGET_SECONDS
from tidegate.web.api_context import ApiContext, json_response
from tidegate.web.problems import Problem
from tidegate.web.protected_routes import READERS, AccessRule, ProtectedRouter, ResponseSpec
from tidegate.web.scaling_schemas import ScalingOut

PoolName = Annotated[str, Path(description="A pool of the application.", max_length=200)]
Least = Annotated[int, Query(ge=0, le=100_000, description="The fewest workers that the pool may have.")]
Most = Annotated[
    int | None,
    Query(ge=0, le=100_000, description="The most workers that the pool may have; default: any number."),
]
Target = Annotated[float, Query(gt=0, le=1e6, description="Seconds within which the backlog should be done.")]
Backlog = Annotated[
    int | None,
    Query(
        ge=1,
        le=1_000_000,
        description="Tasks per worker. If given, only the number of tasks counts, and not their run times.",
    ),
]


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the route."""

    @api.route(
        "GET",
        "/api/v1/autoscale/{pool}",
        AccessRule(READERS, all_tenants=True),
        responses={200: ResponseSpec("The number of workers", ScalingOut)},
    )
    async def autoscale(
        request: Request,
        pool: PoolName,
        min_workers: Least = 0,
        max_workers: Most = None,
        target_seconds: Target = DEFAULT_TARGET_SECONDS,
        backlog_per_worker: Backlog = None,
    ) -> Response:
        """Return how many workers a pool should have now, and what limits the number."""
        found = next((each for each in context.core.pools if each.name == pool), None)
        if found is None:
            names = ", ".join(each.name for each in context.core.pools)
            raise Problem("not-found", f"the application has no pool {pool[:64]}; its pools: {names}")
        scaling = scaling_of(found, min_workers, max_workers, target_seconds, backlog_per_worker)
        decision = await decide_scaling(await context.store(), found.queues, scaling)
        return json_response(
            ScalingOut(
                pool=pool,
                desired_workers=decision.workers,
                desired_slots=decision.slots,
                slots_per_worker=scaling.slots_per_worker,
                runnable=decision.runnable,
                running=decision.running,
                bound=decision.bound,
                reason=decision.reason,
            )
        )
