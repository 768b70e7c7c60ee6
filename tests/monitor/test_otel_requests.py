"""The trace of a web request continues in the tasks that it enqueues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from support import all_final, make_app
from tidegate import Tidegate
from tidegate.integrations.fastapi import DurableTasksDep, DurableTasksMiddleware

pytestmark = pytest.mark.anyio
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tidegate:
    monkeypatch.setenv("TIDEGATE_RUN_SPANS", "parent")
    return make_app(tmp_path)


@pytest.mark.parametrize("path", ["/async", "/sync", "/durable"])
async def test_a_request_of_fastapi_its_task_and_the_run_are_one_trace(
    telemetry: Any, queue: Tidegate, path: str
) -> None:
    @queue.task(name="site:greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    site = FastAPI()
    site.add_middleware(DurableTasksMiddleware, queue=queue)

    @site.post("/async")
    async def from_async_code() -> str:
        return (await greet.enqueue("Ada")).id

    @site.post("/sync")
    def from_a_thread() -> str:
        return greet.enqueue_sync("Ada").id

    @site.post("/durable")
    async def before_the_response(tasks: DurableTasksDep) -> str:
        return tasks.add_task(greet, "Ada")

    transport = httpx2.ASGITransport(app=site)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        task_id = (await client.post(path, headers=HEADERS)).json()
    async with queue.worker():
        await all_final(queue, [task_id])
    (process,) = telemetry.spans("process")
    by_id = {span.context.span_id: span for span in telemetry.spans()}
    above, names = process, []
    while above.parent.span_id in by_id:
        above = by_id[above.parent.span_id]
        names.append(above.name)
    assert f"{above.parent.span_id:016x}" == SPAN, names
    assert names[0] == "send default"
    assert f"POST {path}" in names  # FastAPI's own span
    assert {f"{span.context.trace_id:032x}" for span in (above, process)} == {TRACE}
