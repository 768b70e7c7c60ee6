"""After `forget`, no file of the database's folder has the bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.test_store_forget import CANARY, canary_tasks
from store_build import Build, SettableClock

from tidegate.operations.forget import forget
from tidegate.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio


def files_with(folder: Path, text: str) -> list[str]:
    return sorted(
        file.name for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()
    )


@pytest.mark.parametrize("tenant", ["", CANARY])
async def test_the_bytes_are_in_no_file_of_the_folder(tmp_path: Path, tenant: str) -> None:
    clock = SettableClock()
    store = SqliteStore(tmp_path / "queue.db", clock=clock)
    build = Build(store, clock)
    await build.enqueue(300, args=b"x" * 300)
    ids = await canary_tasks(build, tenant)
    await build.enqueue(300, args=b"y" * 300)
    await store.checkpoint()
    assert files_with(tmp_path, CANARY) != []

    if tenant:
        report = await forget(store, tenant=tenant)
        assert report.not_erased == ""
    else:
        for task_id in ids:
            report = await forget(store, task_id=task_id)
            assert report.not_erased == ""

    assert files_with(tmp_path, CANARY) == []
    assert (tmp_path / "queue.db-wal").stat().st_size == 0
    await build.sound()
    await build.enqueue(10)
    await store.close()


async def test_a_reader_that_keeps_the_log_is_reported_and_a_second_call_erases(tmp_path: Path) -> None:
    import apsw

    clock = SettableClock()
    store = SqliteStore(tmp_path / "queue.db", clock=clock, busy_seconds=0.2)
    build = Build(store, clock)
    (task_id, _) = await canary_tasks(build)
    reader = apsw.Connection(str(tmp_path / "queue.db"))
    reader.execute("BEGIN; SELECT count(*) FROM task").fetchall()

    report = await forget(store, task_id=task_id)
    assert "a process reads the database" in report.not_erased
    reader.close()

    assert (await forget(store, task_id=task_id)).not_erased == ""
    assert files_with(tmp_path, f"{CANARY}-succeeded") == []
    await store.close()
