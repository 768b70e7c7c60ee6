"""While a lease does not hold nothing begins: a body that waited for it begins when it is renewed, or never."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from executor_scene import Scene

from support import APPS, load_app, starts, until
from tidegate import Context, Tidegate
from tidegate.context import Stop
from tidegate.domain.outcome import Released, Succeeded

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
async def test_a_body_begins_when_the_lease_is_renewed(scene: Scene, where: str) -> None:
    entered: list[str] = []
    scene.lease.renew(OVER)
    scene.start(declare(scene.app, where, entered))
    await _some_turns()
    assert entered == []
    scene.lease.renew(HOLDS)
    assert isinstance(await scene.ended(), Succeeded)
    assert entered == ["entered"]


@pytest.mark.parametrize("where", ["loop", "thread"])
@pytest.mark.parametrize("why", [Stop.LOST, Stop.RELEASE])
async def test_a_body_that_waits_for_the_lease_never_begins_once_it_is_stopped(
    scene: Scene, where: str, why: Stop
) -> None:
    entered: list[str] = []
    scene.lease.renew(OVER)
    attempt = scene.start(declare(scene.app, where, entered))
    await _some_turns()
    scene.executor.stop(attempt, why)
    outcome = await scene.ended()
    scene.lease.renew(HOLDS)
    await _some_turns()
    assert entered == []
    assert outcome is None if why is Stop.LOST else isinstance(outcome, Released)
    assert len(scene.outcomes) == 1


async def test_a_lease_that_ran_out_while_a_child_process_was_started_keeps_its_body_back(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(APPS)
    scene.app.functions |= load_app("bodies", tmp_path, monkeypatch).app.functions
    attempt = scene.start("sync_nap", 0.0)
    scene.lease.renew(OVER)

    async def is_there() -> bool:
        return any(slot._ready.done() for slot in scene.slots.processes)

    await until(is_there, what="the child process is there")
    await _some_turns()
    assert [slot.runs for slot in scene.slots.processes] == [0]
    scene.executor.stop(attempt, Stop.LOST)
    assert await scene.ended() is None
    assert starts(tmp_path, attempt.claimed.fence.task_id) == []


async def _some_turns() -> None:
    """Let everything that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)
