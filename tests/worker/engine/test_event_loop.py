"""The event loop of a pool process: which one it is, and that everything works on each."""

from __future__ import annotations

import importlib.util
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from support import load_app, starts, until, worker_process
from tidegate import ConfigError, State, TaskCancelledError, TaskFailedError
from tidegate.worker.engine.event_loop import new_event_loop


@pytest.fixture
def without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvloop" else found(name))


@pytest.mark.parametrize(
    ("kind", "package"), [("auto", "uvloop"), ("uvloop", "uvloop"), ("asyncio", "asyncio")]
)
def test_uvloop_is_used_where_it_is_installed_unless_asyncio_is_asked_for(kind: str, package: str) -> None:
    loop = new_event_loop(kind)
    packages = [base.__module__.split(".")[0] for base in type(loop).__mro__]
    loop.close()
    assert ("uvloop" in packages) == (package == "uvloop")


@pytest.mark.usefixtures("without_uvloop")
def test_without_uvloop_auto_is_asyncio_and_uvloop_is_refused_with_the_fix() -> None:
    loop = new_event_loop("auto")
    loop.close()
    assert type(loop).__module__.startswith("asyncio")
    with pytest.raises(ConfigError, match="uvloop is not installed") as refused:
        new_event_loop("uvloop")
    assert "tidegate[uvloop]" in refused.value.fix


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_the_clock_of_the_loop_is_current_after_a_callback_that_blocks(kind: str) -> None:
    """Else a lease that ended meanwhile would still seem to hold."""
    loop = new_event_loop(kind)
    late: list[float] = []

    def compare() -> None:
        late.append(time.monotonic() - loop.time())

    loop.call_soon(time.sleep, 0.05)
    loop.call_soon(compare)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert late[0] < 0.04


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["asyncio", pytest.param("uvloop", marks=pytest.mark.slow)])
async def test_tasks_run_are_stopped_and_are_cancelled_on_each_event_loop(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = load_app("bodies", tmp_path, monkeypatch)

    async def started(task_id: str) -> None:
        async def look() -> bool:
            return bool(starts(tmp_path, task_id))

        await until(look, what=f"{task_id} starts")

    with worker_process("bodies:app", tmp_path, EVENT_LOOP=kind) as worker:
        assert await (await client.name_event_loop.enqueue()).result(20) == kind
        assert await (await client.nap.enqueue(0.05)).result(20) == "slept"
        assert await (await client.sync_nap.enqueue(0.05)).result(20) == "slept"
        with pytest.raises(TaskFailedError):
            await (await client.swallow.enqueue()).result(20)
        for function in (client.nap, client.sync_nap):
            handle = await function.enqueue(30.0)
            await started(handle.id)
            await handle.cancel()
            with pytest.raises(TaskCancelledError):
                await handle.result(20)
        handle = await client.nap.enqueue(0.5)
        await started(handle.id)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert (await handle.status()).state is State.SUCCEEDED
    await client.app.aclose()
