"""Messages between pool processes and child processes of two versions."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.worker.children.messages import RunTask, decode_to_child

FIRST = {
    "type": "run", "function": "bodies:nap", "task_id": "0" * 32, "run": 1, "attempt": 1, "max_attempts": 3, "queue": "q",
    "priority": 1, "upstream": "u", "tenant": "t", "labels": {"a": "b"}, "args": b"{}", "scratch_root": "/tmp", "ends_at": 7.5,
}  # fmt: skip
"""The fields of the first version's message."""


def frame(**more: Any) -> bytes:
    return msgspec.msgpack.encode(FIRST | more)


def test_a_child_reads_messages_of_an_older_version() -> None:
    run = decode_to_child(frame())
    assert isinstance(run, RunTask)
    assert (run.function, run.labels, run.ends_at, run.is_probe) == ("bodies:nap", {"a": "b"}, 7.5, False)


def test_a_child_ignores_fields_of_a_newer_version() -> None:
    assert decode_to_child(frame(of_tomorrow=[1])) == decode_to_child(frame())


def test_every_field_that_was_added_has_a_default() -> None:
    required = {field.name for field in msgspec.structs.fields(RunTask) if field.required}
    assert required == FIRST.keys() - {"type"}
