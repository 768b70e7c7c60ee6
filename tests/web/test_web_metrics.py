"""`GET /metrics`: who may read it, and in which formats."""

from __future__ import annotations

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from web_support import NO_AUTHORITIES, bearer, direct, make, serve

from tidegate import Tidegate
from tidegate.web import Role, create_app

pytestmark = pytest.mark.anyio


async def test_prometheus_reads_the_metrics_with_a_viewer_token(app: Tidegate) -> None:
    async with direct(app) as client:
        await client.post("/api/v1/tasks", json={"task": "web:add", "args": {"a": 1}})
    async with serve(create_app(app)) as url:
        headers = bearer(await make(app, Role.VIEWER))
        async with httpx2.AsyncClient(base_url=url, trust_env=False, verify=NO_AUTHORITIES) as client:
            assert (await client.get("/metrics")).status_code == 401
            answer = await client.get("/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    tasks = {sample.labels["state"]: sample.value for sample in families["tidegate_queue_tasks"].samples}
    assert tasks["blocked"] == 1, "no worker is live"


async def test_a_client_that_asks_for_openmetrics_gets_it(app: Tidegate) -> None:
    async with direct(app) as client:
        answer = await client.get(
            "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
        )
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
