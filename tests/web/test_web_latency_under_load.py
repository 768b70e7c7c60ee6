"""The story the README begins with: eight long tasks fill eight workers, and a user comes along."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import httpx2
import pytest
from web_support import NO_AUTHORITIES, serve

from support import load_app, until, worker_process
from tidegate import Tidegate
from tidegate.domain.states import State
from tidegate.internals import core_of
from tidegate.web import WebSettings, create_app

pytestmark = pytest.mark.anyio


async def test_eight_long_tasks_do_not_delay_a_web_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_app("bodies", tmp_path, monkeypatch)
    app: Tidegate = module.app
    api = create_app(app, settings=WebSettings(open_without_tokens=True))
    with worker_process("bodies:app", tmp_path, CONCURRENCY="8"):
        async with (
            serve(api) as url,
            httpx2.AsyncClient(base_url=url, trust_env=False, verify=NO_AUTHORITIES) as client,
        ):
            long = [(await submit(client, 60))[0] for _ in range(8)]

            async def all_run() -> bool:
                rows = await core_of(app).store.read_tasks(long)
                return [row.state for row in rows.values()] == [State.RUNNING] * 8

            await until(all_run, within=30)
            waiting = [await submit(client, 0) for _ in range(100)]
            seconds = [taken for _, taken in waiting]
            # Milliseconds on a quiet machine: `python -m benchmarks web` has the figures.
            assert statistics.median(seconds) < 1.0
            assert max(seconds) < 10.0
            states = {(await client.get(f"/api/v1/tasks/{one}")).json()["state"] for one, _ in waiting[:10]}
            assert states == {"ready"}  # nobody is free for them, and everybody can see it

            asked = [client.post(f"/api/v1/tasks/{one}/cancel", json={"force": True}) for one in long]
            assert {answer.json()["answer"] for answer in await asyncio.gather(*asked)} == {"requested"}
            last = await client.get(f"/api/v1/tasks/{waiting[-1][0]}/result", headers={"Prefer": "wait=20"})
            assert last.json()["state"] == "succeeded"
    await app.aclose()


async def submit(client: httpx2.AsyncClient, seconds: float) -> tuple[str, float]:
    """Submit a nap; return its task_id and how long the answer took."""
    begun = time.perf_counter()
    answer = await client.post("/api/v1/tasks", json={"task": "nap", "args": {"seconds": seconds}})
    taken = time.perf_counter() - begun
    assert answer.status_code == 202
    return answer.json()["task_id"], taken
