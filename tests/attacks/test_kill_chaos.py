"""Workers killed, stopped and continued at random: no task is lost, none re-runs without a reason."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checker import (
    ClientObservations,
    ObservedCancel,
    RunLimits,
    SubmittedTask,
    check,
    digest_of,
    read_notes,
    read_snapshot,
)
from support import APPS, all_final
from tidegate import State
from tidegate.domain.states import FINAL
from tidegate.internals import core_of
from tidegate.store.rows import CancelStatus

pytestmark = pytest.mark.anyio
LEASE = 1.0
ACTS = {"pool": 5, "supervisor": 2, "everything": 3, "slot": 3, "pause": 1, "term": 2}


class Fleet:
    """Two worker commands; one that ended is started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = os.environ | {
            "TIDEGATE_DATABASE_URL": f"sqlite:///{directory}/queue.db",
            "TIDEGATE_SCRATCH": str(directory / "scratch"),
            "TIDEGATE_RUN": str(directory / "run"),
            "WITNESS": str(directory / "notes"),
            "LEASE": str(LEASE),
            "PYTHONPATH": str(APPS.parent),  # the history checker
        }
        self.log = (directory / "workers.log").open("ab")
        self.members: list[subprocess.Popen[bytes]] = []
        self.started: set[int] = set()

    def fill(self) -> None:
        self.members = [member for member in self.members if member.poll() is None]
        while len(self.members) < 2:
            member = subprocess.Popen(
                [sys.executable, "-m", "tidegate.cli", "worker", "chaos:app"],
                cwd=APPS,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                start_new_session=True,
            )
            self.members.append(member)

    def children(self, pid: int) -> list[int]:
        """Return the living children of a process."""
        found: list[int] = []
        with contextlib.suppress(OSError, ValueError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
        self.started.update(found)
        return found

    def close(self) -> None:
        for member in self.members:
            send(member.pid, signal.SIGKILL)
            member.wait(10)
        for pid in self.started:
            with contextlib.suppress(OSError):
                if self.env["WITNESS"].encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    send(pid, signal.SIGKILL)
        self.log.close()


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


async def strike(fleet: Fleet, rng: random.Random, done: Counter[str]) -> None:
    """Inject one random fault into one member of the fleet."""
    member = rng.choice(fleet.members)
    pools = fleet.children(member.pid)
    slots = [pid for pool in pools for pid in fleet.children(pool)]
    act = rng.choices(list(ACTS), list(ACTS.values()))[0]
    victims = {
        "pool": pools,
        "supervisor": [member.pid],
        "everything": [member.pid, *pools, *slots],
        "slot": slots[:1],
        "pause": [member.pid, *pools, *slots],
        "term": [member.pid],
    }[act]
    if not victims:
        return
    done[act] += 1
    if act == "pause":
        for pid in victims:
            send(pid, signal.SIGSTOP)
        await asyncio.sleep(LEASE * rng.uniform(1.6, 2.5))
        for pid in victims:
            send(pid, signal.SIGCONT)
    else:
        for pid in victims:
            send(pid, signal.SIGTERM if act == "term" else signal.SIGKILL)


class Crowd:
    """Clients that enqueue all the time and sometimes cancel."""

    def __init__(self, module: Any, rng: random.Random) -> None:
        self.module = module
        self.rng = rng
        self.submitted: list[SubmittedTask] = []
        self.cancels: list[ObservedCancel] = []

    async def enqueue(self, number: int) -> None:
        module, rng = self.module, self.rng
        task = rng.choice(
            [
                lambda: module.nap.prepare(number, rng.uniform(0, 0.3)),
                lambda: module.nap.prepare(number, rng.uniform(0.5, 1.5)),
                lambda: module.sync_nap.prepare(number, rng.uniform(0, 0.3)),
                lambda: module.flaky.prepare(number),
            ]
        )().new_task
        await core_of(module.app).enqueue_prepared(task)
        self.submitted.append(SubmittedTask(task.id, digest_of(task.args)))
        if rng.random() < 0.05:
            await self.cancel(rng.choice(self.submitted).task_id)

    async def cancel(self, task_id: str) -> None:
        answer: CancelStatus = await self.module.app.cancel(task_id)
        self.cancels.append(ObservedCancel(task_id, answer, time.time()))


def load_chaos(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", f"sqlite:///{directory}/queue.db")
    spec = importlib.util.spec_from_file_location("chaos", APPS / "chaos.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "chaos", module)
    spec.loader.exec_module(module)
    return module


async def rage(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, kills: int, gap: float, rate: float, seed: int
) -> Counter[str]:
    """Run clients and workers under random faults, then compare all records."""
    module = load_chaos(directory, monkeypatch)
    rng = random.Random(seed)
    fleet, crowd, done = Fleet(directory), Crowd(module, rng), Counter[str]()
    await core_of(module.app).opened_store()

    enough = asyncio.Event()

    async def clients() -> None:
        number = 0
        while not enough.is_set():
            await crowd.enqueue(number)
            number += 1
            await asyncio.sleep(rng.expovariate(rate))

    try:
        fleet.fill()
        enqueueing = asyncio.create_task(clients())
        while sum(done.values()) < kills:
            await asyncio.sleep(rng.uniform(0.3, 1.7) * gap)
            await strike(fleet, rng, done)
            fleet.fill()
        enough.set()  # not cancelled: an enqueue in progress might be stored without being recorded
        await enqueueing
        fleet.fill()
        await all_final(module.app, [one.task_id for one in crowd.submitted], within=120)
    finally:
        fleet.close()
    snapshot = await read_snapshot(core_of(module.app).store)
    limits = {name: RunLimits.of(function.spec) for name, function in core_of(module.app).functions.items()}
    reported = ClientObservations(tuple(crowd.submitted), tuple(crowd.cancels))
    violations = check(reported, read_notes(directory / "notes"), snapshot, limits=limits)
    assert [str(violation) for violation in violations] == []
    assert len(snapshot.rows) == len(crowd.submitted)
    assert {row.state for row in snapshot.rows.values()} <= FINAL
    states = Counter(row.state for row in snapshot.rows.values())
    assert states[State.SUCCEEDED] > 0.7 * len(snapshot.rows)
    assert await core_of(module.app).store.check_integrity() == []
    await module.app.aclose()
    return done | Counter({"tasks": len(snapshot.rows)})


async def test_a_few_kills_lose_nothing_and_repeat_nothing_without_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rage(tmp_path, monkeypatch, kills=6, gap=0.4, rate=25, seed=11)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_hundred_kills_lose_nothing_and_repeat_nothing_without_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    done = await rage(tmp_path, monkeypatch, kills=120, gap=1.2, rate=12, seed=seed)
    print(dict(done))
