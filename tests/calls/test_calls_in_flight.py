"""max_in_flight applies to calls: parallel calls of one run, calls outside tasks, calls of lost processes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

import httpx2
import pytest

from counting_provider import CountingProvider
from support import all_final, load_app, until, worker_process
from tidegate import Context, Key, State, Tidegate
from tidegate.calls import gate_permit, permit_source
from tidegate.calls.permits import PermitRequest
from tidegate.calls.settings import CallTimes
from tidegate.domain.calls import CallResult
from tidegate.domain.outcome import Fence
from tidegate.errors import UpstreamParkedError
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls wait half a second for others to end, and permits outlast their calls by a tenth of one."""
    monkeypatch.setattr(permit_source, "MAX_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(gate_permit, "PERMIT_MARGIN_SECONDS", 0.1)


async def in_flight(app: Tidegate, name: str = "u") -> int:
    rows = await (await core_of(app).opened_store()).list_upstreams()
    return next(row.in_flight for row in rows if row.name == name)


async def gone(app: Tidegate, name: str = "u") -> bool:
    return await in_flight(app, name) == 0


class Counter:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.now = self.most = self.calls = 0

    async def __aenter__(self) -> None:
        self.now += 1
        self.calls += 1
        self.most = max(self.most, self.now)

    async def __aexit__(self, *_: object) -> None:
        self.now -= 1


# --- outside tasks ---


async def test_calls_outside_tasks_wait_for_each_other(app: Tidegate) -> None:
    upstream = app.upstream("u", max_in_flight=2)
    inside = Counter()

    async def call() -> None:
        async with upstream.call(), inside:
            await asyncio.sleep(0.02)

    await asyncio.gather(*(call() for _ in range(10)))
    assert (inside.calls, inside.most) == (10, 2)
    assert await gone(app)


async def test_a_call_that_waits_too_long_for_a_place_is_refused_with_a_reason(
    app: Tidegate, hurried: None
) -> None:
    upstream = app.upstream("u", max_in_flight=1)
    async with upstream.call():
        with pytest.raises(UpstreamParkedError, match="upstream u already has max_in_flight calls") as raised:
            async with upstream.call():
                pytest.fail("entered")
        assert await in_flight(app) == 1
    assert raised.value.facts["reason"] == "rate_limit"
    assert raised.value.facts["wait_seconds"] > 0
    assert await gone(app)


async def test_a_call_that_fails_or_is_cancelled_frees_its_place_too(app: Tidegate) -> None:
    upstream = app.upstream("u", max_in_flight=1)
    with pytest.raises(ZeroDivisionError):
        async with upstream.call():
            raise ZeroDivisionError
    assert await gone(app)
    entered = asyncio.Event()

    async def hang() -> None:
        async with upstream.call():
            entered.set()
            await asyncio.Event().wait()

    hanging = asyncio.create_task(hang())
    await entered.wait()
    waiting = asyncio.create_task(hang())
    await asyncio.sleep(0)
    waiting.cancel()
    hanging.cancel()
    await asyncio.wait([hanging, waiting])
    await until(lambda: gone(app), what="both permits are back")


async def test_tasks_without_this_upstream_count_their_calls_and_wait_uncharged(
    app: Tidegate, hurried: None
) -> None:
    upstream = app.upstream("u", max_in_flight=1)

    @app.task(name="t")
    async def asks() -> str:
        async with upstream.call():
            return "asked"

    async with app.worker():
        async with upstream.call():
            handle = await asks.enqueue()
            rows = await until(lambda: _parked(app, handle.id), what="the task waits")
        assert rows.counters.attempts == 0
        assert await core_of(app).store.run_now([handle.id])
        assert await handle.result(10) == "asked"


async def _parked(app: Tidegate, task_id: str):
    row = (await core_of(app).store.read_tasks([task_id]))[task_id]
    return row if row.state is State.RETRYING else None


# --- in tasks ---


async def test_calls_of_one_run_take_turns_on_its_place_if_there_is_no_other(
    app: Tidegate, hurried: None
) -> None:
    upstream = app.upstream("u", max_in_flight=1)
    inside = Counter()

    async def call() -> None:
        async with upstream.call(), inside:
            await asyncio.sleep(0.1)

    @app.task(name="t", upstream=upstream, max_attempts=1)
    async def gathers() -> None:
        await asyncio.gather(*(call() for _ in range(8)))

    async with app.worker():
        handle = await gathers.enqueue()
        await handle.result(10)
        (row,) = (await core_of(app).store.read_tasks([handle.id])).values()
    # Eight calls take longer than one may wait: a call that sees others of its run end goes on waiting.
    assert (inside.calls, inside.most, row.counters.parks) == (8, 1, 0)


async def test_calls_of_one_run_use_only_the_places_that_others_leave_free(app: Tidegate) -> None:
    upstream = app.upstream("u", max_in_flight=3)
    inside, flying = Counter(), []

    async def call() -> None:
        async with upstream.call(), inside:
            flying.append(await in_flight(app))
            await asyncio.sleep(0.05)

    @app.task(name="t", upstream=upstream)
    async def gathers() -> None:
        await asyncio.gather(*(call() for _ in range(6)))

    async with app.worker():
        for handle in [await gathers.enqueue() for _ in range(2)]:
            await handle.result(10)
    assert (inside.calls, inside.most, max(flying)) == (12, 3, 3)
    assert await gone(app)


async def test_sequential_calls_of_a_run_request_no_permit(app: Tidegate) -> None:
    upstream = app.upstream("u", max_in_flight=1)
    store = await core_of(app).opened_store()
    asked = []
    acquire_slot = store.acquire_slot

    async def spied(name, *, permit_record=None, **options):
        asked.append(permit_record)
        return await acquire_slot(name, permit_record=permit_record, **options)

    store.acquire_slot = spied  # type: ignore[method-assign]

    @app.task(name="t", upstream=upstream)
    async def chain(ctx: Context) -> None:
        for _ in range(3):
            async with upstream.call():
                assert await in_flight(app) == 1

    async with app.worker():
        await (await chain.enqueue()).result(10)
    assert asked == [None, None], "slots for the second and the third, and nothing for the first"


async def test_the_limit_of_a_key_holds_for_each_call_with_it(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_A", "secret-a")
    monkeypatch.setenv("KEY_B", "secret-b")
    keys = [Key("a", env="KEY_A", max_in_flight=1), Key("b", env="KEY_B", max_in_flight=2)]
    upstream = app.upstream("u", max_in_flight=5, keys=keys)
    inside = {"secret-a": Counter(), "secret-b": Counter()}

    async def call() -> None:
        async with upstream.call() as one:
            assert one.api_key is not None
            async with inside[one.api_key]:
                await asyncio.sleep(0.02)

    @app.task(name="t", upstream=upstream)
    async def gathers() -> None:
        await asyncio.gather(*(call() for _ in range(4)))

    async with app.worker():
        handles = [await gathers.enqueue() for _ in range(2)]
        await asyncio.gather(*(call() for _ in range(4)))
        for handle in handles:
            await handle.result(20)
    assert {name: counter.most for name, counter in inside.items()} == {"secret-a": 1, "secret-b": 2}
    assert sum(counter.calls for counter in inside.values()) == 12
    for name in ("u", "u#a", "u#b"):
        assert await gone(app, name)


# --- streams ---


async def test_a_stream_holds_its_permit_until_it_is_read_to_its_end_or_closed(app: Tidegate) -> None:
    upstream = app.upstream("u", max_in_flight=1)
    async with (
        CountingProvider() as provider,
        httpx2.AsyncClient(transport=upstream.transport()) as http,
    ):
        request = http.build_request("POST", f"{provider.url}/stream", json={})
        read = await http.send(request, stream=True)
        assert await in_flight(app) == 1
        await read.aread()
        assert await gone(app)
        left = await http.send(request, stream=True)
        assert await in_flight(app) == 1
        await left.aclose()
        assert await gone(app)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_permit_of_a_response_that_is_not_closed_expires_with_its_lease(
    app: Tidegate, hurried: None
) -> None:
    upstream = app.upstream("u", max_in_flight=1, times=CallTimes(seconds=0.3, idle_seconds=0.3))
    async with (
        CountingProvider(seconds=5) as provider,
        httpx2.AsyncClient(transport=upstream.transport()) as http,
    ):
        request = http.build_request("POST", f"{provider.url}/stream", json={})
        answer = await http.send(request, stream=True)
        assert await in_flight(app) == 1
        del answer
        gc.collect()
        await until(lambda: gone(app), within=5, what="the lease is over")
        async with upstream.call():
            assert await in_flight(app) == 1


async def test_a_stream_longer_than_its_lease_keeps_its_permit(app: Tidegate, hurried: None) -> None:
    times = CallTimes(seconds=0.5, idle_seconds=0.5)
    upstream = app.upstream("u", max_in_flight=1, times=times)
    counts = []
    async with (
        CountingProvider(seconds=1.6) as provider,
        httpx2.AsyncClient(transport=upstream.transport()) as http,
        http.stream("POST", f"{provider.url}/stream", json={}) as answer,
    ):
        async for _ in answer.aiter_bytes():
            counts.append(await in_flight(app))
    assert len(counts) >= 4
    assert set(counts) == {1}
    assert await gone(app)


async def test_an_unreferenced_response_frees_its_runs_place_for_the_next_call(app: Tidegate) -> None:
    upstream = app.upstream("u", max_in_flight=1)
    await (await core_of(app).opened_store()).declare_limits([upstream.declared])
    request = PermitRequest(fence=Fence("01900000-0000-7000-8000-000000000001", 1), is_own_upstream=True)
    forgotten = await upstream.permits.acquire(request)
    assert await in_flight(app) == 0
    del forgotten
    gc.collect()
    permit = await upstream.permits.acquire(request)
    assert await in_flight(app) == 0
    await permit.settle(CallResult())


# --- several processes ---


async def test_three_at_once_are_never_exceeded_by_two_workers_and_calls_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_url: str
) -> None:
    async with CountingProvider(seconds=0.15) as provider:
        crowded = load_app("crowded", tmp_path, monkeypatch, url=store_url)
        environment = {"PROVIDER_URL": provider.url, "TIDEGATE_DATABASE_URL": store_url}
        with (
            worker_process("crowded:app", tmp_path, **environment),
            worker_process("crowded:app", tmp_path, **environment),
        ):
            handles = [await crowded.gathers.enqueue(number) for number in range(6)]
            handles += [await crowded.calls_twice.enqueue(number) for number in range(4)]
            await provider.has_begun(3, within=30)
            async with httpx2.AsyncClient(transport=crowded.upstream.transport()) as http:
                await asyncio.gather(*(http.post(provider.url, json={}) for _ in range(6)))
            rows = await all_final(crowded.app, [handle.id for handle in handles], within=60)
        assert await gone(crowded.app, "crowded")
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert (provider.calls, provider.most) == (6 * 4 + 4 * 2 + 6, 3)
    await crowded.app.aclose()


async def test_permits_of_a_killed_process_expire_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with CountingProvider(seconds=120) as provider:
        crowded = load_app("crowded", tmp_path, monkeypatch)
        environment = {"PROVIDER_URL": provider.url, "CALL_SECONDS": "3", "PERMIT_MARGIN_SECONDS": "0.5"}
        with worker_process("crowded:app", tmp_path, **environment) as worker:
            await crowded.holds.enqueue(1)
            await provider.has_begun(2, within=30)
            assert await in_flight(crowded.app, "crowded") == 2, "the run, and its second call"
            for pid in [worker.pid, *worker.children()]:
                os.kill(pid, signal.SIGKILL)
            worker.wait()
            assert await in_flight(crowded.app, "crowded") == 2

            async def only_the_run_is_left() -> bool:
                return await in_flight(crowded.app, "crowded") == 1

            await until(only_the_run_is_left, what="the lease of the second call is over")
    await crowded.app.aclose()
