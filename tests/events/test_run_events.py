"""The events of tasks, runs, workers and calls, from a real worker on a real store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from support import all_final, make_app, until
from tidegate import Tidegate, Transient, Verdict
from tidegate.context import Context
from tidegate.domain.spec import Fixed
from tidegate.events import (
    EVENTS,
    Event,
    RunFinished,
    RunOutcome,
    RunStarted,
    TaskDied,
    TaskEnqueued,
    WorkerStarted,
    WorkerStopped,
)
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Tidegate]:
    return make_app(tmp_path)


def recorded(app: Tidegate) -> list[Any]:
    """Return a list that gets every event of an application."""
    seen: list[Any] = []
    for kind in EVENTS:
        app.on_event(kind)(seen.append)
    return seen


def of(events: list[Event], kind: type[Event]) -> list[Any]:
    return [event for event in events if type(event) is kind]


async def test_a_task_that_succeeds_emits_enqueued_started_and_finished(app: Tidegate) -> None:
    @app.task(queue="mail", name="greet")
    async def greet(name: str) -> str:
        return name

    seen = recorded(app)
    async with app.worker() as worker:
        handle = await greet.using(tenant="acme").enqueue("Ada")
        await handle.result(timeout=20)
        worker_id = worker.id
    kinds = [type(event) for event in seen]
    assert kinds[0] is WorkerStarted
    assert kinds[-1] is WorkerStopped
    assert sorted(kind.__name__ for kind in kinds[1:-1]) == ["RunFinished", "RunStarted", "TaskEnqueued"]
    (enqueued,), (started,), (finished,) = (
        of(seen, kind) for kind in (TaskEnqueued, RunStarted, RunFinished)
    )
    for event in (enqueued, started, finished):
        assert (event.task_id, event.function, event.queue, event.tenant) == (
            handle.id, "greet", "mail", "acme"
        )  # fmt: skip
    assert enqueued.created
    assert enqueued.priority == "normal"
    assert (started.run, started.attempt, started.worker_id) == (1, 1, worker_id)
    assert (finished.outcome, finished.failure, finished.why) == (RunOutcome.SUCCEEDED, None, "")
    assert 0 <= finished.wait_seconds < 20
    assert 0 <= finished.seconds < 20


async def test_a_failed_run_says_why_and_when_the_next_one_is(app: Tidegate) -> None:
    @app.task(name="flaky", max_attempts=2, backoff=Fixed(0.05))
    async def flaky() -> None:
        raise Transient("the password is hunter2")

    seen = recorded(app)
    async with app.worker():
        handle = await flaky.enqueue()
        await all_final(app, [handle.id])
    first, last = of(seen, RunFinished)
    assert (first.outcome, first.run, first.charge) == (RunOutcome.RETRYING, 1, "attempt")
    assert first.failure.verdict is Verdict.TRANSIENT
    assert first.retry_seconds > 0
    assert (last.outcome, last.run, last.attempt, last.max_attempts) == (RunOutcome.DEAD, 2, 2, 2)
    (died,) = of(seen, TaskDied)
    assert died.failure == last.failure
    assert died.why == last.why == "all 2 attempts spent"
    assert died.failure.error_class.endswith("Transient")
    assert "test_run_events.py" in died.failure.traceback


async def test_a_key_that_is_taken_is_reported_as_not_created(app: Tidegate) -> None:
    @app.task(name="nothing")
    async def nothing() -> None: ...

    seen = recorded(app)
    first = await nothing.using(key="k").enqueue()
    await nothing.using(key="k").enqueue()
    assert [(event.task_id, event.created) for event in of(seen, TaskEnqueued)] == [
        (first.id, True), (first.id, False)
    ]  # fmt: skip


async def test_every_task_of_a_bulk_enqueue_has_its_event(app: Tidegate) -> None:
    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    seen = recorded(app)
    handles = await double.enqueue_many([(n,) for n in range(5)])
    more = await asyncio.to_thread(double.enqueue_many_sync, [(n,) for n in range(3)])
    assert [event.task_id for event in of(seen, TaskEnqueued)] == [h.id for h in [*handles, *more]]


async def test_a_subscriber_that_raises_harms_no_run_and_is_logged_once(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    for kind in EVENTS:

        @app.on_event(kind)
        def broken(event: Event) -> None:
            raise RuntimeError(type(event).__name__)

    with caplog.at_level(logging.ERROR, "tidegate.events"):
        async with app.worker():
            handles = [await double.enqueue(n) for n in range(3)]
            assert [await handle.result(timeout=20) for handle in handles] == [0, 2, 4]
    messages = [record.getMessage() for record in caplog.records if record.name == "tidegate.events"]
    assert len(messages) == len(set(messages)) == 5  # enqueued, started, finished, worker started and stopped


async def test_a_function_sees_the_context_variables_that_a_subscriber_of_its_start_sets(
    app: Tidegate,
) -> None:
    current: ContextVar[str] = ContextVar("current", default="none")

    @app.on_event(RunStarted)
    def bind(event: RunStarted) -> None:
        current.set(event.task_id)

    @app.task(name="on_the_loop")
    async def on_the_loop() -> str:
        return current.get()

    @app.task(name="in_a_thread", runs_in="thread")
    def in_a_thread() -> str:
        return current.get()

    async with app.worker():
        for function in (on_the_loop, in_a_thread):
            handle = await function.enqueue()
            assert await handle.result(timeout=20) == handle.id
    assert current.get() == "none"


async def test_a_cancelled_run_and_a_released_one_say_so(app: Tidegate) -> None:
    running = asyncio.Event()

    @app.task(name="endless")
    async def endless() -> None:
        running.set()
        await asyncio.sleep(3600)

    seen = recorded(app)
    async with app.worker() as worker:
        cancelled = await endless.enqueue()
        await running.wait()
        running.clear()
        await cancelled.cancel()
        await all_final(app, [cancelled.id])
        await endless.enqueue()
        await running.wait()
        await worker.stop(grace=0.0)
    assert [event.outcome for event in of(seen, RunFinished)] == [RunOutcome.CANCELLED, RunOutcome.RELEASED]
    assert of(seen, RunFinished)[1].charge == "release"


async def test_a_run_that_lost_its_lease_is_reported_as_lost(app: Tidegate) -> None:
    running = asyncio.Event()

    @app.task(name="endless")
    async def endless() -> None:
        running.set()
        await asyncio.sleep(3600)

    seen = recorded(app)
    async with app.worker() as worker:
        await endless.enqueue()
        await running.wait()
        store = await core_of(app).opened_store()
        await store.retire_worker(worker.id, why="test", is_loss=True, only_if_expired=False, culprit=None)

        async def lost() -> bool:
            return any(event.outcome is RunOutcome.LOST for event in of(seen, RunFinished))

        await until(lost, what="the run is reported as lost")
        await worker.stop(grace=0.0)


# --- traces without OpenTelemetry ------------------------------------------------------------------------


async def test_a_trace_given_at_the_enqueue_reaches_the_run_and_its_children(app: Tidegate) -> None:
    @app.task(name="child")
    async def child(ctx: Context) -> str:
        assert ctx.trace is not None
        return ctx.trace.traceparent

    @app.task(name="parent")
    async def parent(ctx: Context) -> list[str]:
        assert ctx.trace is not None
        one = await child.enqueue()
        (many,) = await child.enqueue_many([()])
        return [ctx.trace.state, ctx.trace.traceparent, one.id, many.id]

    seen = recorded(app)
    async with app.worker():
        handle = await parent.using(traceparent=TRACEPARENT, tracestate="vendor=1").enqueue()
        state, traceparent, *children = await handle.result(timeout=20)
        assert (state, traceparent) == ("vendor=1", TRACEPARENT)
        rows = await all_final(app, children)
    assert {row.labels["tidegate.traceparent"] for row in rows.values()} == {TRACEPARENT}
    assert {event.trace.trace_id for event in seen if hasattr(event, "trace")} == {TRACE}


async def test_a_trace_survives_retry_and_redrive(app: Tidegate) -> None:
    traces = []

    @app.task(name="dies", max_attempts=2, backoff=Fixed(0.05))
    async def dies(ctx: Context) -> None:
        traces.append(ctx.trace)
        raise Transient("no")

    async with app.worker():
        handle = await dies.using(traceparent=TRACEPARENT).enqueue()
        await all_final(app, [handle.id])
        await app.admin.dead_letters.redrive([handle.id])

        async def four() -> bool:
            return len(traces) >= 4

        await until(four, what="it ran four times")
    assert {trace.trace_id for trace in traces} == {TRACE}


async def test_an_invalid_trace_is_ignored_and_none_leaves_no_label(app: Tidegate) -> None:
    @app.task(name="nothing")
    async def nothing() -> None: ...

    store = await core_of(app).opened_store()
    for options in ({"traceparent": "garbage"}, {}, {"tracestate": "vendor=1"}):
        handle = await nothing.using(**options).enqueue()
        assert (await store.read_tasks([handle.id]))[handle.id].labels == {}
