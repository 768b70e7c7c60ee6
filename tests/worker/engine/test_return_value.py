"""Return values that have not run yet: awaited if possible, else the run fails."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from executor_setup import Scene

from support import APPS, FAST, all_final, make_app
from tidegate import Pool, Tidegate
from tidegate.context import RunControl, StopReason
from tidegate.domain.failure import Reason, Verdict
from tidegate.domain.outcome import Cancelled, Dead, Succeeded
from tidegate.worker.children.messages import FunctionFailed, FunctionReturned, RunReply, RunTask
from tidegate.worker.children.process import ChildProcess
from tidegate.worker.engine import return_value

sys.path.insert(0, str(APPS))
import slotted

sys.path.remove(str(APPS))
pytestmark = pytest.mark.anyio

FOREVER = float("inf")
MODES = ["loop", "thread"]


def declare(scene: Scene, body: Callable[..., Any], mode: str) -> None:
    scene.lease.renew(FOREVER)
    if mode == "thread":
        scene.app.task(name="body", runs_in="thread")(body)
        return

    async def in_loop() -> Any:
        return body()

    scene.app.task(name="body")(in_loop)


@pytest.mark.parametrize("body", slotted.AWAITED, ids=lambda body: body.__name__)
@pytest.mark.parametrize("mode", MODES)
async def test_an_awaitable_return_value_is_awaited(
    scene: Scene, body: Callable[..., Any], mode: str
) -> None:
    if body is slotted.coroutine_of_coroutine and mode == "thread":
        pytest.skip("a thread takes no async def")
    declare(scene, body, mode)
    scene.start("body")
    outcome = await scene.ended()
    assert isinstance(outcome, Succeeded)
    assert outcome.result == b'"done"'


@pytest.mark.parametrize("body", slotted.REFUSED, ids=lambda body: body.__name__)
@pytest.mark.parametrize("mode", MODES)
async def test_an_unusable_return_value_is_dead_as_an_invalid_request(
    scene: Scene, body: Callable[..., Any], mode: str
) -> None:
    declare(scene, body, mode)
    scene.start("body")
    outcome = await scene.ended()
    assert isinstance(outcome, Dead)
    assert outcome.failure.verdict is Verdict.PERMANENT
    assert outcome.failure.reason is Reason.INVALID_REQUEST
    assert outcome.failure.message.startswith("body returned ")
    assert slotted.ran == []


@pytest.mark.parametrize("make", [asyncio.Future, Future])
async def test_a_future_of_this_loop_or_of_a_thread_is_waited_for(
    scene: Scene, make: Callable[[], Any]
) -> None:
    future = make()
    declare(scene, lambda: future, "loop")
    scene.start("body")
    await asyncio.sleep(0.02)
    assert not scene.outcomes
    future.set_result("done")
    outcome = await scene.ended()
    assert isinstance(outcome, Succeeded)
    assert outcome.result == b'"done"'


async def test_a_coroutine_returned_by_a_thread_runs_on_the_loop_and_can_be_stopped(scene: Scene) -> None:
    began = asyncio.Event()

    async def long() -> None:
        began.set()
        await asyncio.sleep(100)

    declare(scene, lambda: long(), "thread")
    task_run = scene.start("body")
    await began.wait()
    scene.executor.stop(task_run, StopReason.CANCEL)
    assert isinstance(await scene.ended(), Cancelled)
    assert scene.executor.busy == 0


async def test_a_coroutine_returned_by_a_thread_after_a_stop_is_not_started(scene: Scene) -> None:
    began: list[str] = []
    handed, entered = Future[None](), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def long() -> None:
        began.append("long")

    def body() -> Any:
        loop.call_soon_threadsafe(entered.set)
        handed.result(10)
        return long()

    declare(scene, body, "thread")
    task_run = scene.start("body")
    await entered.wait()
    scene.executor.stop(task_run, StopReason.CANCEL)
    handed.set_result(None)
    assert isinstance(await scene.ended(), Cancelled)
    assert began == []


# --- in a child process ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def child(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChildProcess]:
    """One warm child process, shared by the tests below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(APPS)
        patch.setenv("TIDEGATE_DATABASE_URL", f"sqlite:///{tmp_path_factory.mktemp('child')}/queue.db")
        process = ChildProcess("slotted:app")
        await process.start()
    yield process
    await process.close()


async def run_in(child: ChildProcess, name: str, directory: Path) -> RunReply:
    run = RunTask(
        function=name, task_id="0" * 32, run=1, attempt=1, max_attempts=1, queue="q", priority=1, upstream="", tenant="",
        labels={}, args=b'{"a":[],"k":{}}', scratch_root=str(directory), ends_at=None,
    )  # fmt: skip
    async with asyncio.timeout(20):
        return await child.run(run, RunControl(directory, "scratch", time.monotonic))


@pytest.mark.parametrize("body", slotted.AWAITED, ids=lambda body: body.__name__)
async def test_a_child_process_awaits_an_awaitable_return_value(
    child: ChildProcess, body: Callable[..., Any], tmp_path: Path
) -> None:
    answer = await run_in(child, body.__name__, tmp_path)
    assert isinstance(answer, FunctionReturned)
    assert answer.data == b'"done"'


@pytest.mark.parametrize("body", slotted.REFUSED, ids=lambda body: body.__name__)
async def test_a_child_process_fails_a_run_with_an_unusable_return_value(
    child: ChildProcess, body: Callable[..., Any], tmp_path: Path
) -> None:
    answer = await run_in(child, body.__name__, tmp_path)
    assert isinstance(answer, FunctionFailed)
    assert answer.failure.reason is Reason.INVALID_REQUEST
    assert answer.failure.message.startswith(f"{body.__name__} returned ")


async def test_a_child_process_starts_each_run_in_a_context_without_changes_of_earlier_runs(
    child: ChildProcess, tmp_path: Path
) -> None:
    for _ in range(2):
        answer = await run_in(child, "remember", tmp_path)
        assert isinstance(answer, FunctionReturned)
        assert answer.data == b'"nothing"'


async def test_a_child_process_reports_an_undeclared_function(child: ChildProcess, tmp_path: Path) -> None:
    answer = await run_in(child, "gone", tmp_path)
    assert isinstance(answer, FunctionFailed)
    assert "gone is not declared" in answer.failure.message


# --- in an embedded worker -----------------------------------------------------------------------------


async def test_a_run_sees_context_variables_of_start_hooks_only(
    tmp_path: Path,
) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    client: contextvars.ContextVar[str] = contextvars.ContextVar("client", default="none")
    app: Tidegate = make_app(tmp_path, timings=FAST, pools=[Pool(concurrency=2, poll_interval=0.05)])

    @app.on_start
    async def connect() -> None:
        client.set("connected")

    @app.task(name="in_loop")
    async def in_loop() -> list[str]:
        return [request.get(), client.get()]

    @app.task(name="in_thread", runs_in="thread")
    def in_thread() -> list[str]:
        return [request.get(), client.get()]

    request.set("a web request")
    async with app.worker():
        handles = [await in_loop.enqueue(), await in_thread.enqueue()]
        await all_final(app, [handle.id for handle in handles])
        assert [await handle.result() for handle in handles] == [["none", "connected"]] * 2
    assert request.get() == "a web request"
    await app.aclose()


def test_a_result_of_another_type_is_kept_and_logged_once(tmp_path, caplog):
    app = Tidegate(f"sqlite:///{tmp_path}/q.db")

    @app.task(name=f"m:{tmp_path.name}")
    async def counted() -> int:
        return 1

    for value in ("text", "more", 5):
        assert return_value.encode_return_value(counted.spec.name, counted.signature, value)
    (warning,) = caplog.messages
    assert (
        f"m:{tmp_path.name} is declared to return int but returned str: the result is stored unchanged"
        in warning
    )


def test_a_result_that_is_not_stored_is_logged_with_the_reason(tmp_path, caplog):
    app = Tidegate(f"sqlite:///{tmp_path}/q.db")

    @app.task(name="m:big")
    async def big() -> bytes: ...

    assert return_value.encode_return_value("m:big", big.signature, b"x" * 2**20)
    (warning,) = caplog.messages
    assert warning.startswith("m:big: result not stored: result takes 1,398,1")
