"""Slots follow the work: calls that wait for answers get more of them, and other tasks keep theirs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support import until
from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.store.worker_rows import WorkerRow

pytestmark = pytest.mark.anyio


async def test_thirty_calls_wait_for_answers_at_once_while_other_tasks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.worker.embedded.SLOT_REPORT_SECONDS", 0.1)
    app = Tidegate(f"sqlite:///{tmp_path}/queue.db")
    model = app.upstream("model", requests_per_second=1_000)
    waiting, all_wait, answer = 0, asyncio.Event(), asyncio.Event()

    @app.task(name="ask", upstream=model)
    async def ask(number: int) -> int:
        nonlocal waiting
        async with model.call():
            waiting += 1
            if waiting == 30:
                all_wait.set()
            await answer.wait()
        return number

    @app.task(name="quick")
    async def quick(number: int) -> int:
        return number

    async def grown_worker() -> WorkerRow | None:
        (worker,) = await core_of(app).store.list_workers()
        return worker if worker.slots >= 30 else None

    async with app.worker(), asyncio.timeout(30):
        asked = await ask.enqueue_many([(number,) for number in range(30)])
        await all_wait.wait()
        assert await (await quick.enqueue(1)).result() == 1
        worker = await until(grown_worker, what="the slots are stored")
        assert worker.most_slots == 200
        answer.set()
        assert [await handle.result() for handle in asked] == list(range(30))
    await app.aclose()
