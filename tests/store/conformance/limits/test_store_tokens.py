"""Limits of tokens in the store: charged at the claim by estimate, settled at the end with the real usage."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from store_back_ends import Clients, opened
from store_build import Build, SettableClock, retrying, succeeded

from tidegate.domain.calls import CallSummary
from tidegate.domain.outcome import Outcome
from tidegate.domain.usage import CallTokens, ExpectedTokens, Tokens, TokenUse
from tidegate.limits.options import changed_limits, make_limits
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.limits.tokens import FIRST_ESTIMATE
from tidegate.limits.values import GateRow
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask

pytestmark = pytest.mark.anyio

PER_MINUTE = 60_000  # 1,000 a second


async def declare(store: Store, limits: Limits | None = None) -> None:
    limits = make_limits(tokens_per_minute=PER_MINUTE) if limits is None else limits
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", limits)])


async def gate(store: Store) -> GateRow:
    return next(row for row in await store.list_gates() if row.name == "u")


async def debt(store: Store, window: str = "tokens_per_minute") -> float:
    """How many seconds the bucket is ahead of now."""
    row, now = await gate(store), await store.now()
    return row.buckets[window].next_at - now if window in row.buckets else 0.0


def used(task: ClaimedTask, tokens: Tokens | None, *, calls: int = 1) -> CallSummary:
    """The calls of a run whose first call used these tokens; None: nobody knows."""
    assert task.charged is not None
    return CallSummary(
        calls, own_succeeded=True, tokens=TokenUse(task.function, task.charged, CallTokens(tokens, tokens))
    )


async def run_once(build: Build, tokens: Tokens) -> None:
    """Run one task that shows what calls of its function use, and wait until its tokens are paid for."""
    task = await build.run(upstream="u")
    await build.done(succeeded(task.fence)._replace(calls=used(task, tokens)))
    build.clock.advance(60.0)


async def test_a_claim_charges_each_task_the_tokens_that_its_function_used_before(
    store: Store, build: Build
) -> None:
    await declare(store)
    await run_once(build, Tokens(150, 50))
    await build.enqueue(20, upstream="u")
    tasks = await build.claim(await build.worker())
    assert {task.charged for task in tasks} == {Tokens(150, 50)}
    # Half a second of the quota may be caught up, and slots up to a quarter of a second ahead are handed out.
    assert len(tasks) == pytest.approx(750 / 200, abs=1.1)
    assert await debt(store) == pytest.approx(0.2 * len(tasks))


async def test_before_anything_is_known_a_claim_charges_a_guess(store: Store, build: Build) -> None:
    await declare(store)
    task = await build.run(upstream="u")
    assert task.charged == FIRST_ESTIMATE


async def test_without_a_limit_of_tokens_nothing_is_charged(store: Store, build: Build) -> None:
    await declare(store, make_limits(requests_per_minute=600))
    task = await build.run(upstream="u")
    assert task.charged is None


@pytest.mark.parametrize("ends", ["success", "failure"])
async def test_the_end_of_a_run_settles_what_was_charged(store: Store, build: Build, ends: str) -> None:
    await declare(store)
    await run_once(build, Tokens(500, 500))
    task = await build.run(upstream="u")
    before = await debt(store)
    calls = used(task, Tokens(2_000, 1_000))
    outcome: Outcome = (
        succeeded(task.fence)._replace(calls=calls)
        if ends == "success"
        else replace(retrying(task.fence), calls=calls)
    )
    await build.done(outcome)
    assert await debt(store) == pytest.approx(before + 2.0, abs=0.01)


async def test_tokens_that_were_not_used_are_given_back(store: Store, build: Build) -> None:
    await declare(store)
    await run_once(build, Tokens(4_000, 0))
    task = await build.run(upstream="u")
    before = await debt(store)
    await build.done(succeeded(task.fence)._replace(calls=used(task, Tokens(1_000, 0))))
    assert await debt(store) == pytest.approx(before - 3.0, abs=0.01)


async def test_a_run_without_a_known_usage_keeps_its_charge(store: Store, build: Build) -> None:
    await declare(store)
    await run_once(build, Tokens(4_000, 0))
    task = await build.run(upstream="u")
    before = await debt(store)
    await build.done(succeeded(task.fence)._replace(calls=used(task, None)))
    assert await debt(store) == pytest.approx(before, abs=0.01)


async def test_a_run_that_made_no_call_gives_its_tokens_back(store: Store, build: Build) -> None:
    await declare(store)
    await run_once(build, Tokens(4_000, 0))
    task = await build.run(upstream="u")
    assert task.charged is not None
    assert await debt(store) == pytest.approx(4.0)
    calls = CallSummary(tokens=TokenUse(task.function, task.charged, None))
    await build.done(replace(retrying(task.fence), calls=calls))
    assert await debt(store) == pytest.approx(0.0, abs=0.01)


async def test_an_outcome_that_is_sent_again_settles_once(store: Store, build: Build) -> None:
    await declare(store)
    await run_once(build, Tokens(500, 500))
    task = await build.run(upstream="u")
    outcome = succeeded(task.fence)._replace(calls=used(task, Tokens(3_000, 0)))
    await store.finish([outcome])
    once = await debt(store)
    await store.finish([outcome])
    assert await debt(store) == pytest.approx(once, abs=0.01)


async def test_a_fenced_outcome_settles_nothing_so_the_tokens_of_a_lost_run_stay_charged(
    store: Store, build: Build
) -> None:
    await declare(store)
    await run_once(build, Tokens(500, 500))
    task = await build.run(upstream="u")
    before = await debt(store)
    late = task.fence._replace(run=task.fence.run + 1)
    await store.finish([succeeded(late)._replace(calls=used(task, Tokens(0, 0)))])
    assert await debt(store) == pytest.approx(before, abs=0.01)


async def test_a_single_call_is_charged_what_its_request_says_and_settled_with_the_next_slot(
    store: Store,
) -> None:
    await declare(store)
    expected = ExpectedTokens("f", input=1_500, output=500)
    slot = await store.acquire_slot("u", max_wait_seconds=10.0, expected=expected)
    assert slot.charged == Tokens(1_500, 500)
    assert await debt(store) == pytest.approx(2.0, abs=0.01)
    use = TokenUse("f", slot.charged, CallTokens(Tokens(3_000, 500), Tokens(3_000, 500)))
    refused = await store.acquire_slot("u", max_wait_seconds=0.1, expected=expected, settled=[use])
    assert not refused.is_granted
    assert await debt(store) == pytest.approx(3.5, abs=0.01)
    await store.settle_tokens("u", [use._replace(call=CallTokens(Tokens(0, 0)))])
    assert await debt(store) == pytest.approx(1.5, abs=0.01)


async def test_two_processes_at_once_never_claim_more_than_a_fixed_window_has(
    store: Store, build: Build, clients: Clients, clock: SettableClock
) -> None:
    await declare(store, make_limits(tokens_per_minute=10_000, fixed_windows=True))
    await run_once(build, Tokens(1_000, 0))
    clock.advance(120.0 - clock.now % 60.0 + 5.0)
    await build.enqueue(40, upstream="u")
    first, second = await build.worker(), await build.worker()
    async with opened(clients) as elsewhere:
        claims = await asyncio.gather(
            *(each.claim(build.request(by)) for each, by in ((store, first), (elsewhere, second)) * 4)
        )
    assert sum(len(claim.tasks) for claim in claims) == 10


async def test_a_limit_set_by_hand_takes_effect_at_once_and_rescales_what_is_charged(
    store: Store, build: Build
) -> None:
    await declare(store)
    await run_once(build, Tokens(6_000, 0))
    await build.run(upstream="u")
    before = await debt(store)
    assert before == pytest.approx(6.0)
    limits = (await gate(store)).limits
    await store.set_limits("u", changed_limits(limits, {"tokens_per_minute": 10 * PER_MINUTE}))
    assert await debt(store) == pytest.approx(before / 10, abs=0.01)
    await declare(store)
    assert (await gate(store)).limits.window("tokens_per_minute").amount == 10 * PER_MINUTE  # type: ignore[union-attr]


async def test_input_and_output_tokens_are_counted_apart_and_from_requests(
    store: Store, build: Build
) -> None:
    await declare(
        store,
        make_limits(
            requests_per_minute=600, input_tokens_per_minute=PER_MINUTE, output_tokens_per_minute=PER_MINUTE
        ),
    )
    await run_once(build, Tokens(3_000, 200))
    await build.run(upstream="u")
    assert await debt(store, "input_tokens_per_minute") == pytest.approx(3.0, abs=0.01)
    assert await debt(store, "output_tokens_per_minute") == pytest.approx(0.2, abs=0.01)
    assert await debt(store, "requests_per_minute") == pytest.approx(0.1, abs=0.01)
