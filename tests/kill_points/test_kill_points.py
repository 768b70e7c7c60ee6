"""A worker is killed at a store statement or in a call; the next one pays for nothing twice without listing it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from chaos.paid_calls import HONOURING, PLAIN, Providers, providers, url_of
from harness.paid_calls import PAID, PaidCalls, PaidNote, Promise, paid_call_of, paid_calls_are_kept
from harness.steps import read_notes_of
from kill_points.application import CALLS
from tidegate import State
from tidegate.domain.failure import Reason
from tidegate.store.rows import TaskRow
from tidegate.store.step_rows import DoubtRow

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has imported everything"),
    pytest.mark.timeout(300),
]

TESTS = str(Path(__file__).parents[1])
SEED = 15
LARGEST_LINE = 2**20


class TaskId(NamedTuple):
    """What the checks read of a task and of a doubt."""

    id: str
    state: State

    @property
    def task_id(self) -> str:
        return self.id


class Killed(NamedTuple):
    """What one kill did."""

    point: str
    paid_twice: int
    in_flight: int
    is_in_doubt: bool


class KillPointWorker:
    """The process that runs and kills workers, with the providers that they call."""

    def __init__(self, process: asyncio.subprocess.Process, running: Providers, directory: Path) -> None:
        self._process = process
        self._running = running
        self._directory = directory

    async def report(self, promise: Promise, point: int) -> dict[str, Any]:
        """Run a task, kill its worker at a point, and return what the process reports."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{promise} {point}\n".encode())
        line = await self._process.stdout.readline()
        assert line, "the process ended"
        reported: dict[str, Any] = json.loads(line)
        return reported

    async def kill_at(self, promise: Promise, point: int) -> Killed | None:
        """Kill a worker at a point, and check what came of its task; None if the task was done before."""
        report = await self.report(promise, point)
        task_id, state = report["task_id"], State(report["state"])
        where = f"{promise}, point {point}: {report['point'] or 'not reached'}"
        task = TaskId(task_id, state)
        doubts = [task] * len(report["doubts"])
        notes = [n for n in read_notes_of(self._directory / PAID, PaidNote) if n.task_id == task_id]
        ledger = [call for call in self._running.calls() if paid_call_of(call).task_id == task_id]
        paid = PaidCalls(notes, ledger, cast("list[DoubtRow]", doubts))
        broken = list(paid_calls_are_kept(paid, [cast("TaskRow", task)]))
        assert broken == [], f"{where}: {broken}"
        assert (report["changed"], report["integrity"]) == ([], []), f"{where}: {report}"
        is_in_doubt = (state, report["reason"]) == (State.DEAD, Reason.IN_DOUBT)
        if is_in_doubt:
            assert promise is Promise.ASKED, where
            assert "open" in report["doubts"], where
        else:
            assert (state, report["kept_after"]) == (State.SUCCEEDED, CALLS), f"{where}: {report}"
        if report["killed_at"] is None:
            assert paid.paid_twice == 0, where
            return None
        before = {
            paid_call_of(call) for call in ledger if call.billed and call.received_at <= report["began_at"]
        }
        in_flight = len(before) - report["kept"]
        assert paid.paid_twice <= in_flight, f"{where}: {paid.paid_twice} paid twice, {in_flight} in flight"
        return Killed(report["point"], paid.paid_twice, in_flight, is_in_doubt)


@asynccontextmanager
async def kill_point_worker(store_url: str, directory: Path) -> AsyncIterator[KillPointWorker]:
    async with providers(directory) as running:
        urls = {name: url_of(directory, name) for name in (PLAIN, HONOURING)}
        paths = [TESTS, *filter(None, [os.environ.get("PYTHONPATH")])]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kill_points.worker", store_url, str(directory), json.dumps(urls),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, cwd=directory, limit=LARGEST_LINE,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        try:
            yield KillPointWorker(process, running, directory)
        finally:
            process.stdin.close()
            await process.wait()


async def test_a_kill_at_a_point_of_the_sample_pays_for_nothing_twice_without_listing_it(
    store_url: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    async with kill_point_worker(store_url, tmp_path) as worker:
        count = (await worker.report(Promise.REPEATED, 0))["points"]
        for promise in Promise:
            assert await worker.kill_at(promise, rng.randrange(1, count // 2)) is not None


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_a_kill_at_every_statement_and_in_every_call_pays_for_nothing_twice_without_listing_it(
    store_url: str, tmp_path: Path
) -> None:
    promises = list(Promise)
    killed: list[Killed] = []
    async with kill_point_worker(store_url, tmp_path) as worker:
        count = (await worker.report(Promise.REPEATED, 0))["points"]
        for point in range(1, count + 1):
            if (one := await worker.kill_at(promises[point % 3], point)) is not None:
                killed.append(one)
    assert len(killed) >= 0.8 * count  # the number of commits differs by a few from run to run
    names = {one.point for one in killed}
    assert {"a call was sent", "a call has its last byte"} <= names
    assert any(one.paid_twice for one in killed)
    assert any(one.in_flight and not one.paid_twice for one in killed)
    assert any(one.is_in_doubt for one in killed)
    print(f"{len(killed)} kills at {len(names)} kinds of points")
