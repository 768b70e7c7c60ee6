"""`GET /api/v1/autoscale/{pool}`: what an autoscaler reads."""

from __future__ import annotations

import pytest
from web_support import direct

from tidegate import Tidegate

pytestmark = pytest.mark.anyio


async def test_an_autoscaler_reads_how_many_workers_a_pool_should_have(app: Tidegate) -> None:
    async with direct(app) as client:
        for number in range(3):
            await client.post("/api/v1/tasks", json={"task": "web:add", "args": {"a": number}})
        plain = (await client.get("/api/v1/autoscale/default")).json()
        assert plain == {
            "pool": "default",
            "desired_workers": 1,
            "desired_slots": 3,
            "slots_per_worker": 10,
            "runnable": 3,
            "running": 0,
            "bound": "",
            "reason": "3 runnable and 0 running tasks can use 3 slots",
        }
        asked = {"min_workers": 2, "max_workers": 5, "backlog_per_worker": 100, "target_seconds": 30}
        assert (await client.get("/api/v1/autoscale/default", params=asked)).json()["desired_workers"] == 2
        metrics = (await client.get("/metrics")).text
    assert 'tidegate_pool_desired_workers{pool="default"} 1.0' in metrics


async def test_an_unknown_pool_is_refused_with_the_names_of_the_pools(app: Tidegate) -> None:
    async with direct(app) as client:
        answer = await client.get("/api/v1/autoscale/gpu")
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "the application has no pool gpu; its pools: default",
    )
