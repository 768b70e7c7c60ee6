"""What is left of a drain after its test, if a task blocked the event loop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from tidegate import Tidegate
from tidegate.testing import Kit, NeverEndedError
from tidegate.testing.kit.sleeping import virtual_sleep

app = Tidegate()
go_on = threading.Event()


@app.task
async def block() -> None:
    go_on.wait(60)


def test_a_worker_that_a_task_blocked_ends_and_writes_nothing_during_later_tests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has_ended = threading.Event()

    @contextlib.contextmanager
    def observed_sleep() -> Iterator[None]:
        try:
            with virtual_sleep():
                yield
        finally:
            has_ended.set()

    monkeypatch.setattr("tidegate.testing.kit.base.BLOCKED_SECONDS", 0.1)
    monkeypatch.setattr("tidegate.testing.kit.session.virtual_sleep", observed_sleep)
    with Kit(app) as kit:
        block.enqueue_sync()
        with pytest.raises(NeverEndedError, match="blocks the loop"):
            kit.drain_sync(limit=0.2)
    go_on.set()
    assert has_ended.wait(20)
    assert not [record.getMessage() for record in caplog.records if "writing" in record.getMessage()]
