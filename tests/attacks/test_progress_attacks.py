"""The last progress is always stored, and progress from threads breaks nothing."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attack_support import OddStore

from support import FAST, app_on, until
from tidegate import Context, Pool
from tidegate.context import Progress
from tidegate.domain.outcome import Fence
from tidegate.store.rows import ProgressUpdate
from tidegate.worker.engine.finisher import Finisher

pytestmark = pytest.mark.anyio


async def test_the_last_progress_is_kept_while_other_outcomes_are_written(tmp_path: Path) -> None:
    store = OddStore(tmp_path / "queue.db")
    app = app_on(store, pools=[Pool(concurrency=10, poll_interval=0.05)], timings=FAST)
    writing, go_on = asyncio.Event(), asyncio.Event()

    async def slow(method: Any, *args: Any) -> Any:
        writing.set()
        await go_on.wait()
        return await method(*args)

    @app.task(name="first")
    async def before_write() -> None: ...

    @app.task(name="second")
    async def second(ctx: Context) -> None:
        await writing.wait()
        ctx.progress(7, 7, "all of it")

    async with app.worker():
        waiting = await second.enqueue()

        async def runs() -> bool:
            return (await waiting.status()).run == 1

        await until(runs)
        store.around["finish"] = slow
        await before_write.enqueue()
        await writing.wait()
        await asyncio.sleep(0.05)
        go_on.set()
        await waiting.result(5)
    row = await waiting.status()
    assert row.progress == Progress(7, 7, "all of it")
    await app.aclose()


class ProgressRecorder:
    """A store that records progress in memory."""

    def __init__(self) -> None:
        self.last: dict[Fence, float] = {}

    async def save_progress(self, notes: Sequence[ProgressUpdate]) -> list[Fence]:
        for note in notes:
            self.last[note.fence] = note.done
        return []


async def test_progress_from_many_threads_is_never_lost_and_blocks_no_write() -> None:
    store = ProgressRecorder()
    finisher = Finisher(store, random.Random(1), lambda fence: None)  # type: ignore[arg-type]
    reported, over = 300, threading.Event()

    def report_progress(thread: int) -> None:
        for number in range(reported):
            for run in range(40):
                finisher.record_progress(Fence(f"{thread}", run), Progress(number, None, ""))

    threads = [threading.Thread(target=report_progress, args=(number,)) for number in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            await finisher._write_progress()
        await finisher._write_progress()
    finally:
        sys.setswitchinterval(before)
        over.set()
        for thread in threads:
            thread.join()
    assert store.last == {Fence(f"{thread}", run): reported - 1 for thread in range(4) for run in range(40)}
