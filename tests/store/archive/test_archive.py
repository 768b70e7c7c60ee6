"""The archive: rows are in whole files before they leave the store, and can be read and forgotten there."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tidegate.domain.retention import ArchiveFormat, Data, Retention
from tidegate.errors import ArchiveError
from tidegate.store.archive import Archive
from tidegate.store.archive.files import JOIN_PARTS
from tidegate.store.archive.lines import NewRow, value_bytes
from tidegate.store.retention_rows import ExportedRow
from tidegate.store.sqlite.store import SqliteStore
from tidegate.worker.maintenance.retention import RetentionSweep

pytestmark = pytest.mark.anyio

DAY = 86_400.0
AT = 1_800_000_000.0
TODAY = date(2027, 1, 15)
IDS = [f"0190000{n}-0000-7000-8000-000000000000" for n in range(5)]


def new(task_id: str, table: str = "payload", tenant: str = "", **columns: Any) -> NewRow:
    return NewRow(tenant, ExportedRow(table, task_id, {"task_id": task_id} | columns))


def write(archive: Archive, *rows: NewRow, at: float = AT, data: Data = Data.PAYLOADS) -> None:
    with archive.writing():
        archive.write({data: rows}, at)


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "old")
    write(archive, new(IDS[0], args=b'{"n":1}', codec_tag="json", count=3, at=1.5, none=None))
    write(archive, new(IDS[1], args=b"\xff\x00"))

    (row,) = archive.rows(IDS[0])
    assert (row.table, row.archived_at, row.row["args"], row.row["none"]) == ("payload", AT, '{"n":1}', None)
    (odd,) = archive.rows(IDS[1])
    assert value_bytes(odd.row["args"]) == b"\xff\x00"
    assert [each.task_id for each in archive.rows()] == IDS[:2] or len(list(archive.rows())) == 2


def test_files_can_be_read_without_tidegate_and_by_their_owner_only(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "old")
    write(archive, new(IDS[0], args=b"1"))
    archive.join(date(2027, 1, 16))

    file = tmp_path / "old" / TODAY.isoformat() / "payloads.ndjson.gz"
    with gzip.open(file) as lines:
        (line,) = map(json.loads, lines)
    assert line["row"] == {"task_id": IDS[0], "args": "1"}
    assert file.stat().st_mode & 0o077 == 0
    assert (tmp_path / "old").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", list(ArchiveFormat))
def test_the_parts_of_a_finished_day_become_one_file_for_each_kind(
    tmp_path: Path, kind: ArchiveFormat
) -> None:
    if kind is ArchiveFormat.PARQUET:
        pytest.importorskip("pyarrow", reason="Parquet needs the extra tidegate[parquet]")
    archive = Archive(tmp_path, kind)
    for n in range(3):
        write(archive, new(IDS[n], args=b"1", tenant="acme"))
    write(archive, new(IDS[3], "chunk", data=b"x"), data=Data.CHUNKS)
    before = sorted(row.task_id for row in archive.rows())

    archive.join(TODAY)
    assert [day.files for day in archive.days()] == [3, 1], "the day is not over"
    archive.join(date(2027, 1, 16))

    assert [(day.day, day.data, day.files) for day in archive.days()] == [
        (TODAY, Data.PAYLOADS, 1),
        (TODAY, Data.CHUNKS, 1),
    ]
    assert sorted(row.task_id for row in archive.rows()) == before
    (row,) = archive.rows(IDS[1])
    assert (row.row["args"], row.archived_at) == ("1", AT)
    write(archive, new(IDS[4], args=b"2"))
    archive.join(date(2027, 1, 16))
    assert [day.files for day in archive.days()] == [1, 1], "what comes late is added to the day's file"
    assert len(list(archive.rows())) == 5


def test_many_parts_of_today_are_joined_before_the_day_is_over(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    for _ in range(JOIN_PARTS):
        write(archive, new(IDS[0]))
    archive.join(TODAY)
    assert [day.files for day in archive.days()] == [1]


def test_a_row_that_is_in_two_files_is_shown_once(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    write(archive, new(IDS[0], args=b"1"))
    write(archive, new(IDS[0], args=b"1"))
    assert len(list(archive.rows(IDS[0]))) == 1


def test_what_a_killed_process_left_is_removed_later_and_never_read(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    write(archive, new(IDS[0]))
    left = tmp_path / TODAY.isoformat() / "payloads-x.ndjson.gz.y.tmp"
    left.write_bytes(b"half")
    archive.join(date(2027, 1, 16))
    assert left.exists(), "its process may still write it"
    os.utime(left, (1, 1))
    archive.join(date(2027, 1, 16))
    assert not left.exists()
    assert len(list(archive.rows())) == 1


@pytest.mark.parametrize("kind", list(ArchiveFormat))
def test_forgotten_rows_are_in_no_file(tmp_path: Path, kind: ArchiveFormat) -> None:
    if kind is ArchiveFormat.PARQUET:
        pytest.importorskip("pyarrow", reason="Parquet needs the extra tidegate[parquet]")
    archive = Archive(tmp_path, kind)
    write(archive, new(IDS[0], args=b"canary"), new(IDS[1], args=b"other"))
    archive.join(date(2027, 1, 16))
    write(archive, new(IDS[0], "chunk", data=b"canary"), data=Data.CHUNKS)

    with archive.alone():
        assert archive.forget(lambda row: row.task_id == IDS[0]) == 2

    assert [row.task_id for row in archive.rows()] == [IDS[1]]
    assert [day.data for day in archive.days()] == [Data.PAYLOADS]
    with archive.alone():
        assert archive.forget(lambda row: row.task_id == IDS[0]) == 0


def test_a_damaged_file_is_reported_by_name(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    write(archive, new(IDS[0]))
    (part,) = (tmp_path / TODAY.isoformat()).glob("*.gz")
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(ArchiveError, match="cannot be read"):
        list(archive.rows())


# --- with a store ----------------------------------------------------------------------------------------


async def test_an_unwritable_archive_stops_the_removal_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "a.db", clock=lambda: AT)
    task_id = await finished_task(store)
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    sweep = RetentionSweep(store, Retention(finished=0.0, archive=str(blocked)), clock=time.monotonic)
    store._now = lambda: AT + DAY

    with caplog.at_level(logging.ERROR, "tidegate.maintenance"):
        assert await sweep.run_once() is None

    assert "retention removes nothing" in caplog.text
    assert str(blocked) in caplog.text
    assert set(await store.read_tasks([task_id])) == {task_id}
    blocked.unlink()
    assert await sweep.run_once() == 1
    assert {row.table for row in Archive(blocked).rows(task_id)} >= {"task", "payload", "archive"}
    await store.close()


async def test_a_full_disk_leaves_no_file_and_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "a.db", clock=lambda: AT)
    task_id = await finished_task(store)
    sweep = RetentionSweep(
        store, Retention(finished=0.0, archive=str(tmp_path / "old")), clock=time.monotonic
    )
    store._now = lambda: AT + DAY

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("tidegate.store.archive.files.os.fsync", no_space)
        assert await sweep.run_once() is None
    assert "No space left on device" in caplog.text
    assert [file.name for file in (tmp_path / "old").rglob("*") if file.is_file()] == [".lock"]
    assert await sweep.run_once() == 1
    assert await store.read_tasks([task_id]) == {}
    await store.close()


async def finished_task(store: SqliteStore) -> str:
    from tidegate.codec.tags import CODEC
    from tidegate.domain.spec import Priority
    from tidegate.store.rows import NewTask

    (answer,) = await store.enqueue([NewTask(IDS[0], "f", "q", Priority.NORMAL, b"{}", CODEC, b"same")])
    await store.cancel([answer.task_id])
    return answer.task_id


KILLED = """
    import asyncio, os, signal, sys, time
    from tidegate.domain.retention import Retention
    from tidegate.store.sqlite.store import SqliteStore
    from tidegate.worker.maintenance.retention import RetentionSweep

    class Killed(SqliteStore):
        async def delete_final_tasks(self, *args, **kwargs):
            os.kill(os.getpid(), signal.SIGKILL)

    async def main():
        store = Killed(sys.argv[1])
        await RetentionSweep(
            store, Retention(finished=0.0, archive=sys.argv[2]), clock=time.monotonic
        ).run_once()

    asyncio.run(main())
"""


async def test_a_kill_between_archive_and_removal_loses_no_row(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    task_id = await finished_task(store)
    await store.close()
    child = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "a.db"), str(tmp_path / "old")],
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    archive = Archive(tmp_path / "old")
    assert set(await store.read_tasks([task_id])) == {task_id}
    archived = {row.table for row in archive.rows(task_id)}

    sweep = RetentionSweep(store, Retention(finished=0.0, archive=str(archive.folder)), clock=time.monotonic)
    assert await sweep.run_once() == 1

    assert await store.read_tasks([task_id]) == {}
    assert {row.table for row in archive.rows(task_id)} == archived >= {"task", "payload", "archive"}
    assert len(list(archive.rows())) == 2 * len(archived), "each row is there twice, with the same id"
    await store.close()
