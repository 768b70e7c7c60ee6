"""Any call may probe a closed gate: calls of runs, calls outside tasks, and calls with one key."""

from __future__ import annotations

import httpx2
import pytest

from support import all_final, until
from tidegate import Fixed, Key, State, Tidegate
from tidegate.calls.gate_permit import GatePermit
from tidegate.calls.permit_source import GatePermitSource
from tidegate.calls.permits import PermitRequest
from tidegate.domain.calls import CallResult
from tidegate.domain.failure import CallFailure, Failure, Reason, Verdict
from tidegate.errors import UpstreamParkedError
from tidegate.internals import core_of
from tidegate.limits.values import Gate, GateState, ParkedBy

pytestmark = pytest.mark.anyio

THROTTLED = Failure(Verdict.TRANSIENT, Reason.RATE_LIMIT, status=429)
"""It named no wait, so only a good probe opens the gate."""
DOWN = Failure(Verdict.TRANSIENT, Reason.SERVER_ERROR, status=500)


async def gate_of(app: Tidegate, name: str = "u") -> Gate:
    rows = await (await core_of(app).opened_store()).list_upstreams()
    return next(row.gate for row in rows if row.name == name)


async def parked(app: Tidegate, **options: object) -> GatePermitSource:
    """Return the permits of an upstream, and of its key, that a call just parked."""
    permits = app.upstream("u", **options).permits
    assert isinstance(permits, GatePermitSource)
    await (await permits.acquire(PermitRequest())).settle(CallResult(THROTTLED, 429))
    assert (await gate_of(app)).parked_by is ParkedBy.FAILURES
    return permits


async def probe_of(permits: GatePermitSource) -> GatePermit:
    """Return the permit of the first call that is let through again."""

    async def tried() -> GatePermit | None:
        try:
            return await permits.acquire(PermitRequest(max_wait_seconds=0.1))
        except UpstreamParkedError:
            return None

    found: GatePermit = await until(tried, what="a call is let through to try the gate")
    return found


async def refused(permits: GatePermitSource, *, within: float = 0.05) -> bool:
    try:
        await (await permits.acquire(PermitRequest(max_wait_seconds=within))).release()
    except UpstreamParkedError:
        return True
    return False


async def test_a_call_outside_tasks_probes_a_parked_upstream_and_opens_it(app: Tidegate) -> None:
    permits = await parked(app)
    probe = await probe_of(permits)
    assert (await gate_of(app)).state is GateState.PROBING
    assert await refused(permits), "one at a time"
    await probe.settle(CallResult())
    assert (await gate_of(app)).state is GateState.FLOWING
    assert not await refused(permits, within=2.0), "calls start slowly, because no rate is known yet"


async def test_a_failed_probe_leaves_the_upstream_parked(app: Tidegate) -> None:
    permits = await parked(app)
    for failure in (THROTTLED, DOWN):
        await (await probe_of(permits)).settle(CallResult(failure, failure.status))
        gate = await gate_of(app)
        assert (gate.state, gate.reason) == (GateState.PARKED, str(failure.reason))


async def test_a_probe_that_is_not_made_lets_the_next_call_probe(app: Tidegate) -> None:
    permits = await parked(app)
    await core_of(app).store.report_probe("u", is_good=True, seconds=600.0)  # a good run takes long here
    await core_of(app).store.report_failure("u", CallFailure(Reason.RATE_LIMIT))
    await (await probe_of(permits)).release()
    assert (await gate_of(app)).state is GateState.PARKED
    await (await probe_of(permits)).settle(CallResult())
    assert (await gate_of(app)).state is GateState.FLOWING


async def test_a_key_that_was_throttled_without_a_wait_is_probed(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "secret")
    permits = await parked(app, keys=[Key("k", env="KEY")])
    assert (await gate_of(app, "u#k")).parked_by is ParkedBy.FAILURES
    await (await probe_of(permits)).settle(CallResult(DOWN, 500))
    assert (await gate_of(app, "u#k")).state is GateState.PARKED
    await (await probe_of(permits)).settle(CallResult())
    assert (await gate_of(app, "u#k")).state is GateState.FLOWING
    assert (await gate_of(app)).state is GateState.FLOWING


@pytest.mark.parametrize("seconds", [3600, 10**9])
async def test_a_gate_that_a_person_opens_or_probes_is_open_in_the_process_that_parked_it(
    app: Tidegate, seconds: int
) -> None:
    upstream = app.upstream("u")
    named = iter([seconds, seconds])

    def answer(request: httpx2.Request) -> httpx2.Response:
        wait = next(named, None)
        return httpx2.Response(200 if wait is None else 429, headers={"retry-after": f"{wait}"}, json={})

    async with httpx2.AsyncClient(transport=upstream.transport(httpx2.MockTransport(answer))) as client:

        @app.task(name="t", upstream=upstream, max_attempts=1)
        async def ask() -> None:
            (await client.post("http://p/", json={})).raise_for_status()

        async def waits(parks: int) -> bool:
            row = (await core_of(app).store.read_tasks([first.id]))[first.id]
            return row.state is State.RETRYING and row.counters.parks == parks

        async with app.worker():
            first = await ask.enqueue()
            await until(lambda: waits(1), what="the first answer parks it")
            await core_of(app).store.open_gate("u")
            await until(lambda: waits(2), what="it goes at once, and is told to wait again")
            await core_of(app).store.request_probe("u")
            second = await ask.enqueue()
            await second.result(10)
            rows = await all_final(app, [first.id, second.id], within=15)
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert rows[first.id].counters.parks == 2


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("status", [429, 500])
async def test_functions_with_several_calls_recover_from_one_failure(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch, status: int, has_key: bool
) -> None:
    monkeypatch.setenv("KEY", "secret")
    upstream = app.upstream("u", keys=[Key("k", env="KEY")] if has_key else [])
    statuses = iter([status])
    calls = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        calls.append(request)
        return httpx2.Response(next(statuses, 200), json={})

    async with httpx2.AsyncClient(transport=upstream.transport(httpx2.MockTransport(answer))) as client:

        @app.task(name="t", upstream=upstream, backoff=Fixed(0.1))
        async def ask(number: int) -> None:
            for step in range(3):
                (await client.post("http://p/", json={"n": number, "s": step})).raise_for_status()

        async with app.worker():
            handles = [await ask.enqueue(number) for number in range(3)]
            rows = await all_final(app, [handle.id for handle in handles], within=15)
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert (await gate_of(app)).state is GateState.FLOWING
    assert len(calls) <= 3 * 3 + 3, "no more than those in flight were made again"


async def test_a_call_of_a_run_on_its_last_attempt_leaves_the_probe_to_others(app: Tidegate) -> None:
    upstream = app.upstream("u")
    calls: list[bool] = []

    @app.task(name="t", max_attempts=1, timeout=5)
    async def nested() -> None:
        async with upstream.call():
            calls.append(True)
            raise httpx2.ConnectTimeout("down")

    permits = await parked(app)
    await until(lambda: _is_probe_due(app), what="a probe is due")
    async with app.worker():
        handle = await nested.enqueue()

        async def refused_once() -> bool:
            return (await handle.status()).state is State.RETRYING

        await until(refused_once, what="its call is refused, which costs it nothing")
    assert not calls
    await (await probe_of(permits)).settle(CallResult())


async def _is_probe_due(app: Tidegate) -> bool:
    store, gate = await core_of(app).opened_store(), await gate_of(app)
    return gate.probe_at is not None and await store.now() >= gate.probe_at
