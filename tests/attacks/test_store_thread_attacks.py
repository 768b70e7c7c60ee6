"""Only one thread at a time uses a connection of the store, also across close and reopen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from support import make_app, until
from tidegate.internals import core_of
from tidegate.store.sqlite.session import JobSession

pytestmark = pytest.mark.anyio


async def test_a_store_that_is_closed_in_mid_write_and_used_again_has_one_writer_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(tmp_path)
    go_on, inside, most = threading.Event(), [0], [0]
    real = JobSession.write

    def counted(session: JobSession, jobs: Sequence[Any], *late: Callable[[], Any]) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        try:
            go_on.wait(10)
            return real(session, jobs, *late)
        finally:
            inside[0] -= 1

    @app.task(name="t")
    async def body(number: int) -> None: ...

    await body.enqueue(0)
    monkeypatch.setattr(JobSession, "write", counted)
    first = asyncio.create_task(body.enqueue(1))
    await until(lambda: _truth(inside[0]))
    closing = asyncio.create_task(app.aclose())
    await asyncio.sleep(0.05)
    second = asyncio.create_task(body.enqueue(2))
    await asyncio.sleep(0.1)
    go_on.set()
    handles = await asyncio.gather(first, second)
    await closing
    assert most == [1]
    assert len(await core_of(app).store.read_tasks([handle.id for handle in handles])) == 2
    await app.aclose()


async def _truth(value: Any) -> bool:
    return bool(value)
