"""An application's upstream: its transport and manual calls in real tasks, with its gate in the store."""

from __future__ import annotations

import logging
import time

import httpx2
import openai
import pytest

from support import all_final, load_app, worker_process
from tidegate import Context, State, Tidegate
from tidegate.calls.permit_source import GatePermitSource
from tidegate.calls.permits import PermitRequest
from tidegate.calls.reports import DEFAULT_PARK_SECONDS
from tidegate.calls.settings import CallTimes
from tidegate.domain.calls import CallResult
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.errors import UpstreamParkedError
from tidegate.internals import core_of
from tidegate.limits.values import GateState
from tidegate.testing.provider import ProviderSettings, SimulatedProvider

pytestmark = pytest.mark.anyio
TEXT = "The tide came in at dawn. It left at noon! Nobody saw it go."
QUICK = CallTimes(seconds=5)


def a_client(provider, upstream):
    http = httpx2.AsyncClient(transport=upstream.transport())
    return openai.AsyncOpenAI(base_url=provider.url, api_key="k", http_client=http)


async def chat(client, text=TEXT):
    messages = [{"role": "user", "content": text}]
    answer = await client.chat.completions.create(model="m", messages=messages)
    return answer.choices[0].message.content


async def gate_of(app, name):
    return next(
        row.gate for row in await (await core_of(app).opened_store()).list_upstreams() if row.name == name
    )


async def test_tasks_call_a_real_sdk_through_the_transport_one_call_each(app: Tidegate):
    upstream = app.upstream("openai", times=QUICK)
    async with SimulatedProvider() as provider, a_client(provider, upstream) as client:

        @app.task(name="t", upstream=upstream)
        async def summarise(ctx: Context, number: int) -> str:
            return await chat(client, f"{TEXT} {number}")

        async with app.worker():
            handles = [await summarise.enqueue(number) for number in range(5)]
            for handle in handles:
                assert (await handle.result(10)).startswith("The tide")
        calls = provider.ledger.calls()
    assert len(calls) == 5
    assert len({call.idempotency_key for call in calls}) == 5
    assert (await gate_of(app, "openai")).state is GateState.FLOWING


async def test_a_call_that_meets_an_empty_account_parks_the_gate_for_everyone(app: Tidegate):
    upstream = app.upstream("openai", times=QUICK)
    await (await core_of(app).opened_store()).declare_limits([upstream.declared])
    async with (
        SimulatedProvider(ProviderSettings(budget_calls=0)) as provider,
        a_client(provider, upstream) as client,
        a_client(provider, upstream) as another,
    ):
        with pytest.raises(openai.RateLimitError):
            await chat(client)
        with pytest.raises(UpstreamParkedError) as raised:
            await chat(another)
        assert provider.ledger.count() == 1
    assert raised.value.facts["reason"] == "quota"
    assert (await gate_of(app, "openai")).state is GateState.PARKED


async def test_a_task_whose_call_is_rate_limited_waits_uncharged(app: Tidegate):
    upstream = app.upstream("openai", times=QUICK)
    async with (
        SimulatedProvider(ProviderSettings(requests_per_minute=60, requests_burst=1)) as provider,
        a_client(provider, upstream) as client,
    ):

        @app.task(name="t", upstream=upstream)
        async def summarise(number: int) -> str:
            return await chat(client, f"{TEXT} {number}")

        async with app.worker():
            handles = [await summarise.enqueue(number) for number in range(3)]
            rows = await all_final(app, [handle.id for handle in handles])
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert {row.counters.attempts for row in rows.values()} <= {0, 1}


async def test_a_manual_call_is_limited_and_reported(app: Tidegate):
    upstream = app.upstream("farm", provider="replicate", times=CallTimes(seconds=0.05))
    await (await core_of(app).opened_store()).declare_limits([upstream.declared])
    async with upstream.call(model="m", output_tokens=5) as call:
        assert call.api_key is None
        call.failed(Failure(Verdict.TRANSIENT, Reason.OVERLOADED, wait_seconds=60))
    with pytest.raises(UpstreamParkedError) as raised:
        async with upstream.call():
            pytest.fail("entered")
    assert 59 < raised.value.facts["wait_seconds"] <= 66


async def test_the_provider_of_an_upstream_decides_what_its_errors_mean(app: Tidegate):
    upstream = app.upstream("qwen-eu", provider="dashscope")

    class QuotaError(Exception):
        status_code = 429
        body = {"code": "insufficient_quota"}

    @app.task(name="t", upstream=upstream)
    async def asks() -> None:
        raise QuotaError

    @app.task(name="u")
    async def asks_nobody() -> None:
        raise QuotaError

    assert asks.spec.provider == "dashscope"
    async with app.worker():
        known, unknown = await asks.enqueue(), await asks_nobody.enqueue()
        rows = await all_final(app, [unknown.id])
        assert rows[unknown.id].reason == "quota"
        (run,) = [entry for entry in await known.history() if entry.kind == "run"]
    assert run.reason == "rate_limit"


async def test_a_worker_warns_of_a_timeout_that_is_not_above_the_calls(app: Tidegate, caplog):
    upstream = app.upstream("openai")
    hand_made = app.upstream("by hand")

    @app.task(name="short", upstream=upstream, timeout=600)
    async def short() -> None: ...

    @app.task(name="long", upstream=upstream, timeout=601)
    async def long() -> None: ...

    @app.task(name="other", upstream=hand_made, timeout=1)
    async def other() -> None: ...

    @app.on_start
    async def open_client() -> None:
        upstream.transport()

    with caplog.at_level(logging.WARNING, "tidegate.worker"):
        async with app.worker():
            pass
    warned = [record.getMessage() for record in caplog.records if "not longer than" in record.getMessage()]
    assert len(warned) == 1
    assert warned[0].startswith("short: its timeout of 600 s")


# --- the gate, as one process knows it ---


FIRST = PermitRequest(is_charged_at_claim=True)
"""The first call of a run: paid for by its claim."""


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def failed(reason, wait=None, verdict=Verdict.TRANSIENT):
    return CallResult(Failure(verdict, reason, wait_seconds=wait))


@pytest.fixture
async def permits(app: Tidegate):
    clock = Clock()
    upstream = app.upstream("u")
    made = GatePermitSource(upstream.declared, core_of(app).opened_store, clock=clock)
    made.clock = clock
    return made


@pytest.mark.parametrize(("asked", "held"), [(7.0, 7.0), (None, DEFAULT_PARK_SECONDS)])
async def test_calls_wait_as_long_as_the_server_asked(permits, asked, held):
    permit = await permits.acquire(FIRST)
    await permit.settle(failed(Reason.RATE_LIMIT, asked))
    permits.clock.now += held - 0.01
    with pytest.raises(UpstreamParkedError):
        await permits.acquire(FIRST)
    permits.clock.now += 0.02
    await permits.acquire(FIRST)


@pytest.mark.parametrize("reason", [Reason.TIMEOUT, Reason.NETWORK, Reason.INVALID_REQUEST, Reason.UNKNOWN])
async def test_failures_that_do_not_concern_the_upstream_hold_no_call_back(permits, reason):
    permit = await permits.acquire(FIRST)
    await permit.settle(failed(reason, 30.0))
    await permits.acquire(FIRST)


async def test_a_permit_reports_one_end_only(permits, app: Tidegate):
    permit = await permits.acquire(FIRST)
    await permit.settle(CallResult())
    await permit.settle(failed(Reason.OVERLOADED, 30.0))
    await permit.release()
    await permits.acquire(FIRST)
    assert await (await core_of(app).opened_store()).list_upstreams() == []


# --- calls that no claim has charged ---


async def test_further_calls_of_a_run_take_slots_of_their_own(app: Tidegate):
    upstream = app.upstream("openai", requests_per_second=20, times=QUICK)
    async with SimulatedProvider() as provider, a_client(provider, upstream) as client:

        @app.task(name="t", upstream=upstream)
        async def chain(number: int) -> int:
            for step in range(5):
                await chat(client, f"{TEXT} {number} {step}")
            return number

        async with app.worker():
            handles = [await chain.enqueue(number) for number in range(6)]
            assert [await handle.result(20) for handle in handles] == list(range(6))
        at = sorted(call.received_at for call in provider.ledger.calls())
    assert len(at) == 30
    # 30 calls at 20 a second, of which those of half a second may be caught up and of a quarter come early;
    # uncharged, all but the six that were claimed would come at once.
    assert at[-1] - at[0] > 0.6
    rows = await all_final(app, [handle.id for handle in handles])
    assert {row.counters.parks for row in rows.values()} == {0}


async def test_calls_outside_tasks_are_paced_too_without_any_worker(app: Tidegate):
    upstream = app.upstream("u", requests_per_second=10)
    began = time.monotonic()
    for _ in range(10):
        async with upstream.call():
            pass
    # The first is let through at once; those before it may be caught up.
    assert 0.3 < time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("why", "cause"), [("deploy", r"\(parked by a person: deploy\)"), ("", r"\(parked by a person\)")]
)
async def test_a_call_refused_by_a_persons_park_names_the_reason(app: Tidegate, why: str, cause: str):
    upstream = app.upstream("acme", times=QUICK)
    store = await core_of(app).opened_store()
    await store.declare_limits(core_of(app).declared())
    await store.park_gate("acme", seconds=None, why=why)
    with pytest.raises(UpstreamParkedError, match=cause):
        async with upstream.call():
            pytest.fail("no call may be made")


async def test_a_later_call_waits_in_place_for_a_short_park_and_not_for_a_long_one(app: Tidegate):
    upstream = app.upstream("u")
    store = await core_of(app).opened_store()
    await store.declare_limits([upstream.declared])
    await store.park_gate("u", seconds=0.3, why="a break")
    began = time.monotonic()
    async with upstream.call():
        assert time.monotonic() - began > 0.29
    await store.park_gate("u", seconds=120, why="a long one")
    with pytest.raises(UpstreamParkedError) as raised:
        async with upstream.call():
            pytest.fail("entered")
    assert 119 < raised.value.facts["wait_seconds"] <= 120
    await store.park_gate("u", seconds=None, why="for good")
    with pytest.raises(UpstreamParkedError, match="until it is opened"):
        async with upstream.call():
            pytest.fail("entered")


async def test_a_plain_function_in_a_child_process_calls_a_sync_sdk_the_same_way(tmp_path, monkeypatch):
    calling = load_app("calling", tmp_path, monkeypatch)
    async with SimulatedProvider() as provider:
        with worker_process("calling:app", tmp_path, PROVIDER_URL=provider.url):
            handles = [await calling.chain.enqueue(number, 3) for number in range(4)]
            answers = [await handle.result(40) for handle in handles]
        calls = provider.ledger.calls()
    assert answers == [f"The tide of {number}, 2." for number in range(4)]
    assert len(calls) == 12
    assert len({call.idempotency_key for call in calls}) == 12
    await calling.app.aclose()
