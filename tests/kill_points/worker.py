"""A process that forks two workers for each point: the one that is killed, and the one that finishes the task.

It reads `PROMISE POINT` from each line of stdin, and answers each with a line of JSON. Point 0 only counts.

    python -m kill_points.worker STORE-URL DIRECTORY PROVIDERS-JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2

from harness.paid_calls import Promise
from kill_points.application import Album
from kill_points.points import KillPoints
from tidegate import TaskFailedError
from tidegate.domain.states import FINAL
from tidegate.internals import core_of
from tidegate.store.protocol import Store
from tidegate.worker.maintenance.reaper import Reaper

_START_SECONDS = 0.3
"""For the first round of all maintenance jobs, whose statements do not belong to the task."""
_RESULT_SECONDS = 60.0


class PointRunner:
    """Runs one task for each point."""

    def __init__(self, url: str, directory: Path, providers: dict[str, str]) -> None:
        self._url = url
        self._directory = directory
        self._providers = providers

    def run(self, promise: Promise, point: int) -> dict[str, Any]:
        """Kill a worker at a point of its task, let another one finish the task, and return what happened."""
        first = in_fork(lambda: self._first(promise, point or None))
        return first | in_fork(lambda: self._second(promise, first["task_id"]))

    async def _first(self, promise: Promise, point: int | None) -> dict[str, Any]:
        report: dict[str, Any] = {"killed_at": None, "point": ""}

        def killed(name: str) -> None:
            send_report(report | {"killed_at": time.time(), "point": name})

        points = KillPoints(point, killed)
        points.watch_sqlite()
        points.watch_postgres()
        album = self._album(points, is_second=False)
        await (await core_of(album.app).opened_store()).migrate()
        async with album.app.worker():
            await asyncio.sleep(_START_SECONDS)
            handle = await album.app.function(f"album:{promise}").enqueue()
            report["task_id"] = handle.id
            points.is_armed = True
            await handle.result(_RESULT_SECONDS)
            points.is_armed = False
        await album.app.aclose()
        return report | {"points": points.count}

    async def _second(self, promise: Promise, task_id: str) -> dict[str, Any]:
        album = self._album(KillPoints(None, lambda _: None), is_second=True)
        store = await core_of(album.app).opened_store()
        kept = await kept_steps(store, task_id)
        began_at = await self._time_after_all_that_was_sent()
        await requeue_all(store)
        async with album.app.worker():
            with contextlib.suppress(TaskFailedError):
                await album.app.handle(task_id).result(_RESULT_SECONDS)
        (row,) = (await store.read_tasks([task_id])).values()
        assert row.state in FINAL
        after = await kept_steps(store, task_id)
        doubts = await store.list_doubts(state=None, task_id=task_id)
        report = {
            "state": row.state,
            "reason": row.reason,
            "began_at": began_at,
            "kept": len(kept),
            "kept_after": len(after),
            "changed": [key for key in kept if after.get(key) != kept[key]],
            "doubts": [doubt.state for doubt in doubts],
            "integrity": await store.check_integrity(),
        }
        await album.app.aclose()
        return report

    async def _time_after_all_that_was_sent(self) -> float:
        """Return a moment after which a provider receives nothing from the killed worker.

        A provider that answers has also received what the system had queued for it before.
        """
        async with httpx2.AsyncClient() as client:
            for url in self._providers.values():
                (await client.get(f"{url}/models")).raise_for_status()
        return time.time()

    def _album(self, points: KillPoints, *, is_second: bool) -> Album:
        return Album(self._url, self._providers, self._directory, points, is_second=is_second)


async def kept_steps(store: Store, task_id: str) -> dict[str, str]:
    """Return a hash of each recorded result of a task."""
    rows = await store.read_steps(task_id)
    return {row.key: hashlib.sha256(row.data).hexdigest() for row in rows if row.data is not None}


async def requeue_all(store: Store) -> None:
    """Do what a supervisor does when it sees its pool process die."""
    for worker in await store.list_workers():
        if worker.retired_at is None:
            await store.retire_worker(worker.id, why="killed", is_loss=False, only_if_expired=False)
    reaper = Reaper(store, interval=1.0, lease=1.0, clock=time.monotonic)
    while await reaper.decide_orphans():
        continue


_reports = 0
"""The file descriptor to which a forked process writes."""


def send_report(report: dict[str, Any]) -> None:
    """Write what a forked process reports, in one write."""
    os.write(_reports, json.dumps(report).encode())


def in_fork(work: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> dict[str, Any]:
    """Run a coroutine in a forked process, and return what it reported, also if it killed itself."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        global _reports
        _reports = writing
        try:
            send_report(asyncio.run(work()))
        except BaseException as error:
            send_report({"error": repr(error)})
            raise
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as reports:
        report: dict[str, Any] = json.loads(reports.read())
    os.waitpid(pid, 0)
    if "error" in report:
        raise RuntimeError(report["error"])
    return report


def main(url: str, directory: str, providers: str) -> None:
    """Answer one line after the other."""
    runner = PointRunner(url, Path(directory), json.loads(providers))
    for line in sys.stdin:
        promise, point = line.split()
        print(json.dumps(runner.run(Promise(promise), int(point))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
