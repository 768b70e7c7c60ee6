"""What pool processes and slots of two versions say to each other."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.worker.slots.frames import Run, decode_to_slot

FIRST = {
    "type": "run", "function": "bodies:nap", "task_id": "0" * 32, "run": 1, "attempt": 1, "max_attempts": 3, "queue": "q",
    "priority": 1, "upstream": "u", "tenant": "t", "labels": {"a": "b"}, "args": b"{}", "scratch_root": "/tmp", "ends_at": 7.5,
}  # fmt: skip
"""The fields of the first version's frame."""


def frame(**more: Any) -> bytes:
    return msgspec.msgpack.encode(FIRST | more)


def test_a_slot_reads_what_a_pool_process_of_an_older_version_sends() -> None:
    run = decode_to_slot(frame())
    assert isinstance(run, Run)
    assert (run.function, run.labels, run.ends_at, run.is_probe) == ("bodies:nap", {"a": "b"}, 7.5, False)


def test_a_slot_passes_over_what_only_a_newer_version_knows() -> None:
    assert decode_to_slot(frame(of_tomorrow=[1])) == decode_to_slot(frame())


def test_every_field_that_was_added_has_a_default() -> None:
    required = {field.name for field in msgspec.structs.fields(Run) if field.required}
    assert required == FIRST.keys() - {"type"}
