"""The watchdog is notified only while the work goes on."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_support import came

from tidegate.worker.engine.heartbeat import Heartbeat
from tidegate.worker.maintenance.job import MaintenanceJob
from tidegate.worker.settings import Timings
from tidegate.worker.supervisor.health import Health
from tidegate.worker.supervisor.status_reporter import StatusReporter

pytestmark = pytest.mark.anyio


@pytest.fixture
def notify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setenv("TIDEGATE_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "n"))
        end.setblocking(False)
        yield end


def received(end: socket.socket) -> list[str]:
    lines: list[str] = []
    while True:
        try:
            lines += end.recv(65_536).decode().splitlines()
        except BlockingIOError:
            return lines


def health(*problems: str) -> Health:
    return Health("worker", "w1", 1, "sqlite:////q.db", "0", "fine", list(problems))


async def test_the_watchdog_is_not_notified_when_work_has_stopped(notify: socket.socket) -> None:
    moves = True
    presence = StatusReporter("worker", "w1", get_health=health, is_progressing=lambda: moves)
    await presence.start()
    seen: list[str] = []
    await came(lambda: seen.extend(received(notify)) or seen.count("WATCHDOG=1") >= 2, "it is petted")
    moves = False
    received(notify)
    await asyncio.sleep(0.2)
    assert received(notify) == []
    await presence.stop()
    await presence.stop()


async def test_ready_is_reported_once_and_only_without_problems(notify: socket.socket) -> None:
    problems = ["0 of 1 pool processes are ready"]
    presence = StatusReporter(
        "worker", "w1", get_health=lambda: health(*problems), is_progressing=lambda: True
    )
    await presence.start()
    seen: list[str] = []
    await came(lambda: seen.extend(received(notify)) or seen.count("WATCHDOG=1") >= 2, "it is petted")
    assert "READY=1" not in seen
    problems.clear()
    await came(lambda: seen.extend(received(notify)) or "READY=1" in seen, "it is ready")
    await asyncio.sleep(0.1)
    assert (seen + received(notify)).count("READY=1") == 1
    await presence.stop()


class HungStore:
    async def extend_leases(self, ids: object, seconds: float) -> set[str]:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_hanging_heartbeat_is_detected_and_a_failing_one_counts_as_progress() -> None:
    def heartbeat(store: object, alive: list[str]) -> Heartbeat:
        return Heartbeat(
            store=store,  # type: ignore[arg-type]
            timings=Timings(lease=0.2, beat=0.05),
            live_worker_ids=lambda: alive,
            on_renewed=lambda worker_id, until: None,
            on_retired=lambda worker_id: None,
            rng=random.Random(1),
        )

    hung, failing = heartbeat(HungStore(), ["w"]), heartbeat(object(), ["w"])
    jobs = [asyncio.create_task(one.run()) for one in (hung, failing)]
    await came(lambda: hung.silent_seconds() > 0.4, "the hung one is silent")
    assert failing.silent_seconds() < 0.3
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)


async def test_a_hanging_maintenance_job_is_detected() -> None:
    async def hang() -> bool:
        await asyncio.Event().wait()
        return False

    async def pass_by() -> bool:
        return False

    hung = MaintenanceJob("a", 0.01, hang, rng=random.Random(1))
    fine = MaintenanceJob("b", 0.01, pass_by, rng=random.Random(1))
    assert hung.busy_seconds() == 0
    hung.start()
    fine.start()
    await came(lambda: hung.busy_seconds() > 0.2, "it is busy for too long")
    assert fine.busy_seconds() < 0.1
    await asyncio.gather(hung.stop(), fine.stop())
