"""Calls of an upstream with a limit of tokens: charged, settled with their usage, refused if too large."""

from __future__ import annotations

import asyncio

import pytest

from tidegate import CallTooLargeError, Tidegate
from tidegate.domain.usage import Usage
from tidegate.internals import core_of
from tidegate.limits.values import GateRow

pytestmark = pytest.mark.anyio


async def gate(app: Tidegate) -> GateRow:
    store = await core_of(app).opened_store()
    return next(row for row in await store.list_gates() if row.name == "u")


async def test_the_first_call_of_a_task_is_settled_by_its_end_and_later_calls_with_the_next_slot(
    app: Tidegate,
) -> None:
    upstream = app.upstream("u", tokens_per_minute=6_000_000)

    @app.task(name="t", upstream=upstream)
    async def chain() -> None:
        for _ in range(3):
            async with upstream.call() as call:
                call.used(Usage(input_tokens=40_000, output_tokens=2_000))

    async with app.worker():
        await (await chain.enqueue()).result(10)
        async with asyncio.timeout(10):
            while sum(each.calls for each in (await gate(app)).gate.token_estimates) < 3:
                await asyncio.sleep(0.05)
    (estimate,) = (await gate(app)).gate.token_estimates
    assert (estimate.function, estimate.input_tokens, estimate.output_tokens) == ("t", 40_000, 2_000)


async def test_a_call_larger_than_a_whole_declared_limit_kills_its_task_at_once(app: Tidegate) -> None:
    upstream = app.upstream("u", input_tokens_per_minute=1_000)

    @app.task(name="t", upstream=upstream)
    async def huge() -> None:
        async with upstream.call(input_tokens=5_000):
            raise AssertionError("the call was made")

    async with app.worker():
        handle = await huge.enqueue()
        with pytest.raises(Exception, match="larger than the whole limit"):
            await handle.result(10)
        status = await handle.status()
    assert (status.state, status.reason) == ("dead", "too_large")


async def test_a_limit_raised_by_hand_lets_the_large_call_through(app: Tidegate) -> None:
    upstream = app.upstream("u", input_tokens_per_minute=1_000)
    with pytest.raises(CallTooLargeError):
        async with upstream.call(input_tokens=5_000):
            pass
    await app.admin.upstreams.set_limits("u", input_tokens_per_minute=60_000_000)
    async with upstream.call(input_tokens=5_000) as call:
        call.used(Usage(input_tokens=5_000))
