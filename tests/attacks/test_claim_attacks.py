"""Claims whose answer is lost or comes too late: their tasks go back uncharged, and at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from support import until
from tidegate import State, Tidegate
from tidegate.store.sqlite import claim as claiming

pytestmark = pytest.mark.anyio


async def test_a_claim_that_is_committed_while_the_worker_stops_is_given_back_and_not_charged(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    real = claiming.claim

    def slow(*args: Any) -> Any:
        entered.set()
        go_on.wait(10)
        return real(*args)

    @app.task(name="t", on_crash="fail")
    async def body() -> None: ...

    handle = await body.enqueue()
    monkeypatch.setattr(claiming, "claim", slow)
    worker = app.worker()
    await worker.__aenter__()
    await until(lambda: _is_set(entered))
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0.1)
    go_on.set()
    await stopping
    row = await handle.status()
    assert (row.state, row.counters.crashes, row.counters.releases) == (State.READY, 0, 1)


async def _is_set(event: threading.Event) -> bool:
    return event.is_set()
