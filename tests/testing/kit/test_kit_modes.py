"""The modes inline and real, and what plain calls report."""

from __future__ import annotations

import pytest
from kit_app import Refused, app, ask_child_sync, chain, double, greet, refuse, report

from tidegate import ArgumentsError, State, UsageError
from tidegate.testing import Kit, RunFailedError


def test_inline_runs_a_task_before_its_enqueue_returns() -> None:
    with Kit(app, mode="inline"):
        handle = double.enqueue_sync(4)
        assert handle.status_sync().state is State.SUCCEEDED
        assert handle.result_sync(timeout=0) == 8


async def test_inline_runs_in_an_async_test_too() -> None:
    async with Kit(app, mode="inline"):
        assert await (await greet.enqueue("Ada")).result(0) == "hello Ada"


def test_inline_runs_what_a_task_enqueues() -> None:
    with Kit(app, mode="inline") as kit:
        chain.enqueue_sync(2)
        assert [task.state for task in kit.enqueued()] == [State.SUCCEEDED] * 3
        assert ask_child_sync.enqueue_sync(1).result_sync(timeout=0) == 3


def test_inline_runs_all_tasks_of_a_bulk_enqueue() -> None:
    with Kit(app, mode="inline") as kit:
        double.enqueue_many_sync([(number,) for number in range(10)])
        kit.assert_enqueued(double, state="succeeded", count=10)


def test_inline_passes_arguments_and_results_through_the_codec() -> None:
    with Kit(app, mode="inline"):
        with pytest.raises(ArgumentsError):
            double.enqueue_sync(object())  # type: ignore[arg-type]
        assert isinstance(double.enqueue_sync(2).result_sync(timeout=0), int)


def test_inline_waits_for_no_retry_and_for_no_delay() -> None:
    with Kit(app, mode="inline") as kit:
        assert refuse.enqueue_sync("no").status_sync().state is State.RETRYING
        assert double.using(delay="1h").enqueue_sync(1).status_sync().state is State.SCHEDULED
        drained = kit.advance_sync(hours=2)
        assert (drained.dead, drained.succeeded) == (1, 1)


def test_inline_raises_what_a_task_raised_if_asked() -> None:
    with Kit(app, mode="inline", raise_on_failure=True), pytest.raises(RunFailedError) as failed:
        refuse.enqueue_sync("no")
    assert isinstance(failed.value.__cause__, Refused)


def test_real_runs_tasks_while_the_test_goes_on() -> None:
    with Kit(app, mode="real") as kit:
        assert double.enqueue_sync(4).result_sync(timeout=10) == 8
        with pytest.raises(UsageError, match="mode real"):
            kit.drain_sync()
        with pytest.raises(UsageError, match="mode real"):
            kit.advance_sync(hours=1)


async def test_real_runs_in_the_loop_of_an_async_test() -> None:
    async with Kit(app, mode="real"):
        assert await (await greet.enqueue("Ada")).result(10) == "hello Ada"


async def test_real_by_a_plain_with_in_an_async_test_is_refused() -> None:
    with pytest.raises(UsageError, match="async with"), Kit(app, mode="real"):
        pass
    async with Kit(app) as kit:
        assert kit.enqueued() == []


async def test_a_plain_call_records_its_progress_and_what_it_emits() -> None:
    async with Kit(app) as kit:
        assert await report(2) == 2
        assert kit.emitted == [{"page": 1}, {"page": 2}]
        assert [(note.done, note.total, note.note) for note in kit.progress] == [
            (1, 2, "page 1"),
            (2, 2, "page 2"),
        ]
        assert kit.enqueued() == []


async def test_progress_and_chunks_of_a_stored_task_are_those_of_its_handle() -> None:
    async with Kit(app) as kit:
        handle = await report.enqueue(2)
        await kit.drain()
        assert [chunk.data async for chunk in handle.stream()] == [{"page": 1}, {"page": 2}]
        assert (await handle.status()).progress is not None
        assert kit.emitted == []
