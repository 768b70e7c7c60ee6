"""`on_final`: a task of yours runs for each final state of another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support import make_app
from tidegate import FinalState, OptionError, Permanent, RunStarted, State, Tidegate
from tidegate.testing import Kit

pytestmark = pytest.mark.anyio
ENDED: list[FinalState] = []


def declare(app: Tidegate) -> None:
    @app.task(name="report", queue="reports", priority="interactive")
    async def report(final: FinalState) -> None:
        ENDED.append(final)

    @app.task(name="works", on_final=report)
    async def works(number: int) -> int:
        return number

    @app.task(name="fails", on_final=report, max_attempts=1)
    async def fails() -> None:
        raise Permanent("no 7", reason="quota")

    @app.task(name="plain", max_attempts=1)
    async def plain() -> None: ...


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tidegate]:
    application = make_app(tmp_path)
    declare(application)
    ENDED.clear()
    yield application
    await application.aclose()


async def test_a_success_and_a_death_run_the_declared_task(app: Tidegate) -> None:
    async with Kit(app, raise_on_failure=False) as kit:
        good, bad = await app.function("works").enqueue(3), await app.function("fails").enqueue()
        await kit.drain()
    found = {final.task_id: final for final in ENDED}
    assert len(ENDED) == 2
    assert found[good.id] == FinalState(good.id, "works", "default", None, State.SUCCEEDED, 1, "", "", "")
    assert (found[bad.id].state, found[bad.id].reason, found[bad.id].message) == (State.DEAD, "quota", "no 7")


async def test_an_enqueue_chooses_its_own_hook(app: Tidegate) -> None:
    async with Kit(app, raise_on_failure=False) as kit:
        await app.function("plain").using(on_final=app.function("report")).enqueue()
        await app.function("plain").enqueue()
        await kit.drain()
    assert [final.function for final in ENDED] == ["plain"]


async def test_the_hook_continues_the_trace_of_the_task_that_ended(app: Tidegate) -> None:
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    seen = []
    app.on_event(RunStarted)(seen.append)
    async with Kit(app, raise_on_failure=False) as kit:
        await app.function("works").using(traceparent=traceparent, labels={"document": "7"}).enqueue(3)
        await app.function("works").enqueue(4)
        await kit.drain()
    by_function = [(event.function, event.trace and event.trace.traceparent) for event in seen]
    assert sorted(by_function, key=str) == sorted(
        [("works", traceparent), ("report", traceparent), ("works", None), ("report", None)], key=str
    )


async def test_a_cancel_runs_the_hook(app: Tidegate) -> None:
    async with Kit(app, raise_on_failure=False) as kit:
        handle = await app.function("works").using(delay="1h").enqueue(3)
        await handle.cancel()
        await kit.drain()
    assert [(final.task_id, final.state) for final in ENDED] == [(handle.id, State.CANCELLED)]


async def test_a_passed_deadline_runs_the_hook(app: Tidegate) -> None:
    async with Kit(app, raise_on_failure=False) as kit:
        handle = await app.function("works").using(deadline="5s", delay="4s").enqueue(3)
        await kit.advance(seconds=3600)
        await kit.drain()
    assert [final.task_id for final in ENDED] == [handle.id]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("report", "pass a task function"),
        (None.__class__, "pass a task function"),
        ("none", "takes one argument"),
    ],
)
async def test_what_cannot_follow_is_refused_when_it_is_declared(
    app: Tidegate, wrong: object, message: str
) -> None:
    given = app.function("plain") if wrong == "none" else wrong
    with pytest.raises(OptionError, match="on_final") as refused:
        app.task(name="other", on_final=given)(_nothing)  # type: ignore[typeddict-item]
    assert message in refused.value.fix


async def _nothing() -> None: ...


async def test_a_function_that_would_follow_its_own_end_is_refused(app: Tidegate) -> None:
    report = app.function("report")
    with pytest.raises(OptionError, match="again and again"):
        report.using(on_final=report)

    @app.task(name="second", on_final=report)
    async def second(final: FinalState) -> None: ...

    with pytest.raises(OptionError, match="again and again"):
        report.using(on_final=second)

    @app.task(name="third", on_final=second)
    async def third(final: FinalState) -> None: ...

    assert third.spec.on_final is not None
    assert third.spec.on_final.functions == ("second", "report")
