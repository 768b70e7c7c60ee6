"""The recorder of task functions: what it writes, and that it changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker import (
    FunctionRecorder,
    digest_of,
    read_notes,
)
from tidegate import Context, OptionError, Tidegate


async def work(ctx: Context, number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number * 2


def plain_work(ctx: Context, number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number * 2


def deaf_work(number: int) -> int:
    return number


@pytest.mark.anyio
async def test_a_recorded_function_writes_its_runs_and_behaves_as_before(tmp_path: Path) -> None:
    app = Tidegate(f"sqlite:///{tmp_path / 'queue.db'}")
    function, plain = app.task(work), app.task(plain_work)
    recorder = FunctionRecorder(tmp_path / "ledger.ndjson", clock=lambda: 12.5)
    recorder.record_runs(function)
    recorder.record_runs(plain)
    assert await function(4) == 8
    with pytest.raises(ValueError, match="-1"):
        await function(-1)
    assert plain(5) == 10
    with pytest.raises(ValueError, match="-2"):
        plain(-2)
    recorder.close()
    notes = read_notes(tmp_path / "ledger.ndjson")
    assert [(note.event, note.digest, note.error) for note in notes] == [
        ("start", "", ""),
        ("end", digest_of(b"8"), ""),
        ("start", "", ""),
        ("end", "", "ValueError"),
        ("start", "", ""),
        ("end", digest_of(b"10"), ""),
        ("start", "", ""),
        ("end", "", "ValueError"),
    ]
    assert {note.at for note in notes} == {12.5}


def test_a_function_without_a_context_cannot_be_recorded(tmp_path: Path) -> None:
    app = Tidegate(f"sqlite:///{tmp_path / 'queue.db'}")
    recorder = FunctionRecorder(tmp_path / "ledger.ndjson")
    with pytest.raises(OptionError, match="Context"):
        recorder.record_runs(app.task(deaf_work))
    recorder.close()


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ndjson"
    recorder = FunctionRecorder(path)
    recorder.record_start("t1", 1)
    recorder.close()
    with path.open("ab") as file:
        file.write(b'{"event":"end","task_id":"t1"')
    assert [note.event for note in read_notes(path)] == ["start"]
    assert read_notes(tmp_path / "none.ndjson") == []
