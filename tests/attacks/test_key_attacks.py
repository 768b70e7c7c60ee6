"""Idempotency keys hold as long as promised, no matter what happens to their task."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tidegate.codec.tags import CODEC
from tidegate.domain.outcome import Succeeded
from tidegate.domain.retention import Retention
from tidegate.domain.spec import Priority
from tidegate.errors import KeyConflictError
from tidegate.store.rows import ClaimRequest, CrashPolicy, NewTask
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.worker_rows import NewWorker
from tidegate.worker.maintenance.retention import RetentionSweep

pytestmark = pytest.mark.anyio
DAY = 86_400.0


def new(number: int, fingerprint: bytes = b"same") -> NewTask:
    task_id = f"01900000-0000-7000-8000-{number:012d}"
    return NewTask(
        task_id, "f", "q", Priority.NORMAL, b"{}", CODEC, fingerprint, key="invoice 7", key_seconds=30 * DAY
    )


async def test_a_key_outlives_the_retention_of_its_task(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    store = SqliteStore(tmp_path / "queue.db", clock=lambda: now[0])
    (first,) = await store.enqueue([new(1)])
    await store.add_worker(NewWorker("w", "w", "p", "h", 1, ("*",), 1, 30.0))
    claim = await store.claim(ClaimRequest("w", 1, ("*",), {"f": CrashPolicy()}))
    await store.finish([Succeeded(claim.tasks[0].fence, b"1", CODEC)])
    now[0] += 8 * DAY
    assert await RetentionSweep(store, Retention(), clock=time.monotonic).run_once() == 1
    assert await store.read_tasks([first.task_id]) == {}
    (again,) = await store.enqueue([new(2)])
    assert (again.created, again.task_id) == (False, first.task_id)
    with pytest.raises(KeyConflictError):
        await store.enqueue([new(3, b"other arguments")])
    now[0] += 23 * DAY
    (late,) = await store.enqueue([new(4)])
    assert late.created
    assert await store.check_integrity() == []
    await store.close()
