"""Limits learned from headers by real calls: applied before the provider refuses, written rarely, logged once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
import threading
import time

import httpx2
import openai
import pytest

from support import all_final, make_app, until
from tidegate import Key, Pool, State, Tidegate
from tidegate.calls import limit_reports
from tidegate.calls.limit_reports import LimitReporter
from tidegate.calls.permit_source import GatePermitSource
from tidegate.calls.permits import PermitRequest
from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.errors import StoreUnavailableError, UpstreamParkedError
from tidegate.internals import core_of
from tidegate.limits import learned_limits
from tidegate.limits.settings import GateKind
from tidegate.limits.values import GateRow, ObservedLimit
from tidegate.testing.provider import ProviderSettings, SimulatedProvider

pytestmark = pytest.mark.anyio
TEXT = "The tide came in at dawn. It left at noon! Nobody saw it go."


def a_client(provider, upstream=None):
    http = httpx2.AsyncClient(transport=None if upstream is None else upstream.transport())
    return openai.AsyncOpenAI(base_url=provider.url, api_key="k", http_client=http, max_retries=0)


async def chat(client, number=0, **more):
    messages = [{"role": "user", "content": f"{TEXT} {number}"}]
    await client.chat.completions.create(model="m", messages=messages, **more)


async def learned_of(app, name):
    rows = await (await core_of(app).opened_store()).list_upstreams()
    return next(row.gate.learned_limits for row in rows if row.name == name)


def requests(limit, remaining, reset):
    return HeaderLimit(Dimension.REQUESTS, limit, remaining, reset)


class FakeStore:
    """The part of a store that a reporter uses. It can fail, or not answer, a set number of times."""

    def __init__(self, failures: int = 0, hangs: int = 0) -> None:
        self.reports: list[tuple[str, list[ObservedLimit]]] = []
        self.hangs = asyncio.Event()
        self._failures = failures
        self._hangs = hangs

    async def opened(self):
        return self

    async def report_limits(self, upstream, observed):
        if self._failures:
            self._failures -= 1
            raise StoreUnavailableError("away")
        if self._hangs:
            self._hangs -= 1
            self.hangs.set()
            await asyncio.Event().wait()
        self.reports.append((upstream, list(observed)))
        return GateRow(GateKind.UPSTREAM, upstream)


def a_reporter(store: FakeStore) -> LimitReporter:
    return LimitReporter(store.opened, clock=time.monotonic, rng=random.Random(1))


# --- end to end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        (ProviderSettings(requests_per_minute=600), {}),
        (ProviderSettings(tokens_per_minute=60_000), {"max_tokens": 80}),
    ],
    ids=["requests", "tokens"],
)
async def test_without_declared_limits_no_call_is_refused_because_of_headers(tmp_path, settings, more):
    """An account nearly used up, and tasks that ask for three times its limit."""
    app = make_app(tmp_path, pools=[Pool(concurrency=8, poll_interval=0.05)])
    upstream = app.upstream("openai")
    async with SimulatedProvider(settings) as provider, a_client(provider, upstream) as client:
        async with a_client(provider) as somebody_else:
            while await left_of(somebody_else, **more) > 0.03:
                pass
        used_before = provider.ledger.count()

        @app.task(name="t", upstream=upstream)
        async def summarise(number: int) -> None:
            await chat(client, number, **more)

        async with app.worker():
            handles = [await summarise.enqueue(number) for number in range(50)]
            rows = await all_final(app, [handle.id for handle in handles])
        statuses = [call.status for call in provider.ledger.calls()][used_before:]
    await app.aclose()
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert {row.counters.parks for row in rows.values()} == {0}
    assert statuses == [200] * 50


async def left_of(client, **more):
    """Make a call and return the part of the account's limit that is left after it."""
    messages = [{"role": "user", "content": TEXT}]
    answer = await client.chat.completions.with_raw_response.create(model="m", messages=messages, **more)
    what = "tokens" if "x-ratelimit-limit-tokens" in answer.headers else "requests"
    return float(answer.headers[f"x-ratelimit-remaining-{what}"]) / float(
        answer.headers[f"x-ratelimit-limit-{what}"]
    )


async def test_a_call_after_the_last_allowed_one_waits_for_the_window(app: Tidegate):
    upstream = app.upstream("openai")
    settings = ProviderSettings(requests_per_minute=60, requests_burst=1)
    async with SimulatedProvider(settings) as provider, a_client(provider, upstream) as client:
        began_at = time.monotonic()
        await chat(client)
        await chat(client)
        assert time.monotonic() - began_at >= 0.9
        assert [call.status for call in provider.ledger.calls()] == [200, 200]


async def test_tasks_wait_in_the_store_for_an_exhausted_window_uncharged(app: Tidegate):
    upstream = app.upstream("openai")

    @app.task(name="t", upstream=upstream)
    async def calls(first: bool) -> None:
        async with upstream.call() as call:
            if first:
                call.headers({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2"})

    async with app.worker():
        assert await (await calls.enqueue(True)).result(10) is None
        await until(lambda: learned_of(app, "openai"), what="the store knows")
        handle = await calls.enqueue(False)
        (row,) = await (await core_of(app).opened_store()).list_upstreams()
        assert "its limit of requests is used up" in row.waits_for
        assert await handle.result(10) is None
        (run,) = [entry for entry in await handle.history() if entry.kind == "run"]
    assert run.run == 1


async def test_the_limit_of_the_key_that_a_call_used_is_exhausted(app: Tidegate, monkeypatch):
    monkeypatch.setenv("KEY_A", "a")
    monkeypatch.setenv("KEY_B", "b")
    upstream = app.upstream("u", keys=[Key("a", env="KEY_A"), Key("b", env="KEY_B")])
    used = []
    for _ in range(2):
        async with upstream.call() as call:
            used.append(call.api_key)
            call.headers({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"})
        await until(lambda: learned_of(app, f"u#{used[-1]}"), what="the store knows")
    assert used == ["a", "b"]
    assert await learned_of(app, "u") == ()


async def test_a_call_made_in_a_thread_observes_its_headers_there(app: Tidegate):
    upstream = app.upstream("u")
    async with upstream.call() as call:
        await asyncio.to_thread(call.headers, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"})
    await until(lambda: learned_of(app, "u"), what="the store knows")


async def test_a_first_call_of_a_task_waits_in_place_only_briefly(app: Tidegate):
    upstream = app.upstream("u")
    permits = GatePermitSource(upstream.declared, core_of(app).opened_store)
    permit = await permits.acquire(PermitRequest(is_charged_at_claim=True))
    permit.observe_limits([requests(None, 0, 0.2)])
    began_at = time.monotonic()
    permit = await permits.acquire(PermitRequest(is_charged_at_claim=True))
    assert time.monotonic() - began_at >= 0.2
    permit.observe_limits([requests(None, 0, 20.0)])
    with pytest.raises(UpstreamParkedError) as raised:
        await permits.acquire(PermitRequest(is_charged_at_claim=True))
    assert raised.value.facts["reason"] == "rate_limit"
    assert 19 < raised.value.facts["wait_seconds"] <= 22


async def test_an_observed_limit_below_the_stored_one_is_logged_once_per_change(app: Tidegate, caplog):
    upstream = app.upstream("openai", requests_per_minute=900)

    async def calls(limit, left):
        async with upstream.call() as call:
            call.headers(
                {
                    "x-ratelimit-limit-requests": str(limit),
                    "x-ratelimit-remaining-requests": str(left),
                    "x-ratelimit-reset-requests": f"{(limit - left) * 60 / limit:.3f}s",
                }
            )

    async def shown(limit):
        await until(lambda: reported(limit), what="the store knows")

    async def reported(limit):
        return [each for each in await learned_of(app, "openai") if each.limit == limit]

    await (await core_of(app).opened_store()).declare_limits([upstream.declared])
    with caplog.at_level(logging.WARNING, "tidegate.calls"):
        await calls(600, 599)
        await shown(600)
        await calls(600, 200)
        await calls(500, 499)
        await shown(500)
    warnings = [record.getMessage() for record in caplog.records]
    assert [text.split(", and the")[0] for text in warnings] == [
        "upstream openai: its responses show that requests_per_minute is 600",
        "upstream openai: its responses show that requests_per_minute is 500",
    ]
    assert warnings[1].endswith("tidegate upstreams set 'openai' requests_per_minute=500")
    (row,) = await (await core_of(app).opened_store()).list_upstreams()
    assert row.limits.window("requests_per_minute").amount == 900


# --- the reporter


async def test_a_thousand_responses_at_once_are_two_writes_and_the_last_counts():
    store = FakeStore()
    reporter = a_reporter(store)
    for left in reversed(range(1000)):
        reporter.observe(
            "u",
            [requests(1000, left, (1000 - left) * 0.06)],
            sent_at=time.monotonic(),
            request=PermitRequest(),
        )
        await asyncio.sleep(0)
    await until(lambda: asyncio.sleep(0, len(store.reports) >= 2), within=5)
    assert len(store.reports) == 2
    assert store.reports[1][1][0].seen.remaining == 0


async def test_a_response_that_shows_nothing_new_is_not_written():
    store = FakeStore()
    reporter = a_reporter(store)
    for left in (999, 998, 997):
        reporter.observe(
            "u",
            [requests(1000, left, (1000 - left) * 0.06)],
            sent_at=time.monotonic(),
            request=PermitRequest(),
        )
        await until(lambda: asyncio.sleep(0, store.reports), within=5)
    assert len(store.reports) == 1


async def test_a_late_response_to_an_older_call_does_not_reopen_the_gate():
    reporter = a_reporter(FakeStore())
    now = time.monotonic()
    reporter.observe("u", [requests(10, 0, 30.0)], sent_at=now, request=PermitRequest())
    reporter.observe("u", [requests(10, 5, 29.0)], sent_at=now - 1, request=PermitRequest())
    assert reporter.exhausted_seconds("u") > 29


async def test_limits_that_a_store_outage_lost_are_reported_again_with_the_next_response():
    store = FakeStore(failures=1)
    reporter = a_reporter(store)
    reporter.observe("u", [requests(1000, 999, 0.06)], sent_at=time.monotonic(), request=PermitRequest())

    async def reported():
        reporter.observe("u", [requests(1000, 998, 0.12)], sent_at=time.monotonic(), request=PermitRequest())
        return store.reports

    await until(reported, within=5)
    assert store.reports[0][1][0].seen.remaining == 998


async def test_limits_observed_in_many_threads_at_once_are_all_reported():
    store = FakeStore()
    reporter = a_reporter(store)

    def hears(part: int) -> None:
        for number in range(150):
            spent = [requests(10, 0, 30.0)]
            reporter.observe(f"u{part} {number}", spent, sent_at=time.monotonic(), request=PermitRequest())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        await asyncio.gather(*(asyncio.to_thread(hears, part) for part in range(4)))
    finally:
        sys.setswitchinterval(interval)
    await until(lambda: asyncio.sleep(0, len(store.reports) >= 600), what="600 gates are reported")
    assert {gate for gate, _ in store.reports} == {
        f"u{part} {number}" for part in range(4) for number in range(150)
    }


async def test_two_responses_observed_at_once_are_both_kept(monkeypatch):
    reporter = a_reporter(FakeStore())
    both = threading.Barrier(2)

    def meet_and_learn(before, observed, now):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # nobody comes while the other holds the lock
        return learned_limits.merge_observed(before, observed, now)

    def hears(dimension: Dimension) -> None:
        seen = [HeaderLimit(dimension, 100, 50, 1.0)]
        reporter.observe("u", seen, sent_at=time.monotonic(), request=PermitRequest())

    monkeypatch.setattr(limit_reports, "merge_observed", meet_and_learn)
    dimensions = Dimension.REQUESTS, Dimension.TOKENS
    await asyncio.gather(*(asyncio.to_thread(hears, dimension) for dimension in dimensions))
    assert {limit.dimension for limit in reporter.known("u")} == set(dimensions)


async def test_limits_lost_with_a_closed_loop_are_reported_again_by_another():
    store = FakeStore(hangs=1)
    reporter = a_reporter(store)

    async def hears_and_goes() -> None:
        reporter.observe("u", [requests(1000, 999, 0.06)], sent_at=time.monotonic(), request=PermitRequest())
        await store.hangs.wait()

    await asyncio.to_thread(asyncio.run, hears_and_goes())
    assert store.reports == []
    reporter.observe("u", [requests(1000, 998, 0.12)], sent_at=time.monotonic(), request=PermitRequest())
    await until(lambda: asyncio.sleep(0, store.reports), within=5)
