"""No function starts while the lease does not hold; one that waits starts after a renewal, or never."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from executor_setup import Scene

from support import APPS, load_app, starts, until
from tidegate import Context, Tidegate
from tidegate.context import StopReason
from tidegate.domain.outcome import Released, Succeeded
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio

OVER, HOLDS = 0.0, float("inf")


def declare(app: Tidegate, where: str, entered: list[str]) -> str:
    if where == "loop":

        @app.task(name="body")
        async def body(ctx: Context) -> str:
            entered.append("entered")
            return "done"
    else:

        @app.task(name="body", runs_in="thread")
        def threaded(ctx: Context) -> str:
            entered.append("entered")
            return "done"

    return "body"


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_a_task_function_starts_when_the_lease_is_extended(scene: Scene, where: str) -> None:
    entered: list[str] = []
    scene.lease.renew(OVER)
    scene.start(declare(scene.app, where, entered))
    await _some_turns()
    assert entered == []
    scene.lease.renew(HOLDS)
    assert isinstance(await scene.ended(), Succeeded)
    assert entered == ["entered"]


@pytest.mark.parametrize("where", ["loop", "thread"])
@pytest.mark.parametrize("why", [StopReason.LOST, StopReason.RELEASE])
async def test_a_run_that_waits_for_the_lease_never_starts_once_stopped(
    scene: Scene, where: str, why: StopReason
) -> None:
    entered: list[str] = []
    scene.lease.renew(OVER)
    task_run = scene.start(declare(scene.app, where, entered))
    await _some_turns()
    scene.executor.stop(task_run, why)
    outcome = await scene.ended()
    scene.lease.renew(HOLDS)
    await _some_turns()
    assert entered == []
    assert outcome is None if why is StopReason.LOST else isinstance(outcome, Released)
    assert len(scene.outcomes) == 1


async def test_a_lease_that_expired_during_a_child_start_delays_the_task_function(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(APPS)
    core_of(scene.app).functions |= core_of(load_app("bodies", tmp_path, monkeypatch).app).functions
    task_run = scene.start("sync_nap", 0.0)
    scene.lease.renew(OVER)

    async def is_there() -> bool:
        return any(child._ready.done() for child in scene.children.processes)

    await until(is_there, what="the child process exists")
    await _some_turns()
    assert [child.runs for child in scene.children.processes] == [0]
    scene.executor.stop(task_run, StopReason.LOST)
    assert await scene.ended() is None
    assert starts(tmp_path, task_run.claimed.fence.task_id) == []


async def _some_turns() -> None:
    """Let other tasks of the loop run."""
    for _ in range(20):
        await asyncio.sleep(0)
