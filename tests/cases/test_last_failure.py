"""`ctx.last_failure`: the next run sees why an earlier one failed, and can ask the model again with it."""

from __future__ import annotations

import asyncio

import msgspec
import pydantic
import pytest

from tidegate import Context, LastFailure, Reason, Tidegate, Verdict
from tidegate.domain.moments import to_datetime

pytestmark = pytest.mark.anyio


class Invoice(pydantic.BaseModel):
    total: int


async def test_a_run_after_a_models_bad_output_sees_what_was_wrong_with_it(app: Tidegate) -> None:
    seen: list[LastFailure | None] = []
    answers = iter(['{"sum": 3}', '{"total": 3}'])

    @app.task(name="t", backoff=0.01)
    async def extract(ctx: Context) -> int:
        seen.append(ctx.last_failure)
        return Invoice.model_validate_json(next(answers)).total

    async with app.worker():
        handle = await extract.enqueue()
        assert await handle.result(20) == 3
    first, second = seen
    assert first is None
    assert second is not None
    assert (second.reason, second.verdict, second.run) == (Reason.INVALID_OUTPUT, Verdict.TRANSIENT, 1)
    assert "total" in second.message
    assert "Field required" in second.message
    (failed, _) = [entry for entry in await handle.history() if entry.kind == "run"]
    assert (second.message, second.failed_at) == (failed.message, failed.ended_at)


async def test_a_plain_function_in_a_thread_sees_it_too(app: Tidegate) -> None:
    @app.task(name="t", backoff=0.01, runs_in="thread")
    def reports(ctx: Context) -> str:
        if ctx.last_failure is None:
            raise ConnectionResetError("gone")
        return f"{ctx.last_failure.reason} in run {ctx.last_failure.run}: {ctx.last_failure.message}"

    async with app.worker():
        assert await (await reports.enqueue()).result(20) == "network in run 1: gone"


async def test_code_inside_a_run_that_asked_for_its_next_one_finds_the_reason_it_gave(app: Tidegate) -> None:
    @app.task(name="t", backoff=0.01)
    async def asks(ctx: Context) -> str:
        await asyncio.sleep(0)
        if ctx.last_failure is None:
            ctx.retry(0.01, "not ready yet")
        return ctx.last_failure.message

    async with app.worker():
        assert await (await asks.enqueue()).result(20) == "not ready yet"


def test_a_plain_call_has_no_last_failure() -> None:
    assert Context.detached().last_failure is None


def test_it_crosses_processes_as_it_is() -> None:
    failure = LastFailure(Reason.TIMEOUT, Verdict.TRANSIENT, "slow", 2, to_datetime(12.5))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=LastFailure) == failure
