"""Key rings: chosen by environment and function, each with its own limits and gate, never stored."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx2
import pytest

from support import all_final, until
from tidegate import ConfigError, Key, OptionError, RetryAfter, State, Tidegate
from tidegate.calls.keys import KeyRing
from tidegate.calls.permits import PermitRequest
from tidegate.domain.calls import CallResult
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.errors import UpstreamParkedError
from tidegate.internals import core_of
from tidegate.limits.values import GateState
from tidegate.testing.provider import ProviderSettings, SimulatedProvider

pytestmark = pytest.mark.anyio
THROTTLED = Failure(Verdict.TRANSIENT, Reason.RATE_LIMIT, wait_seconds=20.0)


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_A", "secret-a")
    monkeypatch.setenv("KEY_B", "secret-b")


def names(ring: KeyRing, function: str) -> list[str]:
    return [key.name for key in ring.candidates(function)]


async def states(app: Tidegate) -> dict[str, GateState]:
    return {row.name: row.gate.state for row in await (await core_of(app).opened_store()).list_upstreams()}


def test_a_key_for_the_function_is_preferred_and_fails_over_within_its_kind_only() -> None:
    keys = [
        Key("any", env="A", kind="paid"),
        Key("mine", env="B", functions=["f"], kind="free"),
        Key("also", env="C", kind="free"),
        Key("other", env="D", functions=["g"], kind="free"),
    ]
    ring = KeyRing("u", keys, "")
    assert names(ring, "f") == ["mine", "also"]
    assert names(ring, "h") == ["any"]
    assert names(KeyRing("u", [keys[1]], ""), "h") == []


def test_keys_of_another_environment_are_not_in_the_ring() -> None:
    keys = [Key("live", env="A", environment="production"), Key("test", env="B", environment="staging")]
    assert names(KeyRing("u", keys, "staging"), "") == ["test"]
    with pytest.raises(ConfigError, match="no key for the environment"):
        KeyRing("u", keys, "development")


def test_failing_over_stays_within_one_environment() -> None:
    keys = [Key("live", env="A", environment="production"), Key("any", env="B")]
    assert names(KeyRing("u", keys, "production"), "") == ["live"]


@pytest.mark.parametrize("given", [{}, {"env": "A", "file": "b"}, {"env": "A", "requests_per_minute": 0}])
def test_keys_that_cannot_work_are_refused_at_once(given: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Key("k", **given)  # type: ignore[arg-type]
    with pytest.raises(OptionError):
        Key("a#b", env="A")
    with pytest.raises(OptionError, match="two keys"):
        KeyRing("u", [Key("k", env="A"), Key("k", env="B")], "")


async def test_an_upstream_cannot_have_the_name_of_anothers_key(app: Tidegate) -> None:
    app.upstream("u")
    with pytest.raises(OptionError, match="#"):
        app.upstream("u#eu")


async def test_a_missing_key_is_reported_when_the_transport_is_made(app: Tidegate, tmp_path: Path) -> None:
    upstream = app.upstream("u", keys=[Key("k", env="NO_SUCH_VARIABLE")])
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE is empty"):
        upstream.transport()
    upstream = app.upstream("v", keys=[Key("k", file=tmp_path / "nowhere")])
    with pytest.raises(ConfigError, match="cannot be read"):
        upstream.transport()


async def test_a_failure_of_one_key_parks_that_key_and_the_next_one_is_used(app: Tidegate) -> None:
    upstream = app.upstream("u", keys=[Key("a", env="KEY_A"), Key("b", env="KEY_B")])
    first = await upstream.permits.acquire(PermitRequest())
    assert first.api_key == "secret-a"
    await first.settle(CallResult(THROTTLED, 429))
    assert (await upstream.permits.acquire(PermitRequest())).api_key == "secret-b"
    assert await states(app) == {"u": GateState.FLOWING, "u#a": GateState.PARKED, "u#b": GateState.FLOWING}


async def test_the_upstream_parks_when_no_key_flows_until_the_first_of_them_does(app: Tidegate) -> None:
    upstream = app.upstream("u", keys=[Key("a", env="KEY_A"), Key("b", env="KEY_B")])
    for failure in (THROTTLED, Failure(Verdict.PERMANENT, Reason.AUTH, message="revoked")):
        await (await upstream.permits.acquire(PermitRequest())).settle(CallResult(failure, failure.status))
    assert set((await states(app)).values()) == {GateState.PARKED}
    row = next(row for row in await core_of(app).store.list_upstreams() if row.name == "u")
    assert row.gate.until_at is not None, "the throttled key comes back by itself"
    with pytest.raises(UpstreamParkedError):
        await upstream.permits.acquire(PermitRequest(max_wait_seconds=0.1))


async def test_a_key_that_was_taken_out_of_the_ring_does_not_keep_the_upstream_open(app: Tidegate) -> None:
    old = app.upstream("u", keys=[Key("a", env="KEY_A")])
    await old.permits.acquire(PermitRequest())
    core_of(app).upstreams.clear()
    rotated = app.upstream("u", keys=[Key("b", env="KEY_B")])
    await (await rotated.permits.acquire(PermitRequest())).settle(CallResult(THROTTLED, 429))
    with pytest.raises(UpstreamParkedError):
        await rotated.permits.acquire(PermitRequest(max_wait_seconds=0.1))
    assert (await states(app))["u"] is GateState.PARKED


async def test_each_key_has_limits_of_its_own(app: Tidegate) -> None:
    keys = [Key("a", env="KEY_A", requests_per_day=1), Key("b", env="KEY_B")]
    upstream = app.upstream("u", keys=keys)
    assert [(await upstream.permits.acquire(PermitRequest())).api_key for _ in range(3)] == [
        "secret-a",
        "secret-b",
        "secret-b",
    ]


async def test_a_free_key_is_preferred_to_one_that_must_be_waited_for(app: Tidegate) -> None:
    keys = [Key("a", env="KEY_A", requests_per_minute=20), Key("b", env="KEY_B", requests_per_minute=40)]
    upstream = app.upstream("u", keys=keys)
    found = [(await upstream.permits.acquire(PermitRequest())).api_key for _ in range(3)]
    assert found == ["secret-a", "secret-b", "secret-b"], "b is free again after 1.5 s, a after 3"


async def test_tasks_go_on_with_the_next_key_when_the_first_is_refused(
    app: Tidegate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with SimulatedProvider(ProviderSettings(api_keys=("secret-b",))) as provider:
        upstream = app.upstream("u", keys=[Key("a", env="KEY_A"), Key("b", env="KEY_B")])
        async with httpx2.AsyncClient(transport=upstream.transport()) as client:

            @app.task(name="t", upstream=upstream, max_attempts=1)
            async def call(number: int) -> None:
                body = {"model": "m", "messages": [{"role": "user", "content": f"number {number}"}]}
                (await client.post(f"{provider.url}/chat/completions", json=body)).raise_for_status()

            async with app.worker():
                handles = [await call.enqueue(number) for number in range(5)]
                rows = await all_final(app, [handle.id for handle in handles])
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert {row.counters.attempts for row in rows.values()} == {0}
    assert (await states(app))["u#a"] is GateState.PARKED
    assert (await states(app))["u"] is GateState.FLOWING
    assert "key u#a is parked" in caplog.text
    assert "upstream u is parked" not in caplog.text
    assert b"secret-a" not in (tmp_path / "queue.db").read_bytes()


def throttles(secret: str, seconds: float) -> httpx2.MockTransport:
    """A provider that throttles one key, and serves every other."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.headers["authorization"] == f"Bearer {secret}":
            return httpx2.Response(429, headers={"retry-after": f"{seconds:g}"}, json={"error": {}})
        return httpx2.Response(200, json={})

    return httpx2.MockTransport(answer)


async def test_a_task_that_met_the_limit_of_one_key_goes_on_with_the_next_at_once(app: Tidegate) -> None:
    upstream = app.upstream("u", keys=[Key("a", env="KEY_A"), Key("b", env="KEY_B")])
    async with httpx2.AsyncClient(transport=upstream.transport(throttles("secret-a", 120))) as client:

        @app.task(name="t", upstream=upstream, max_attempts=1)
        async def call(number: int) -> None:
            (await client.post("http://provider/", json={"number": number})).raise_for_status()

        async with app.worker():
            handles = [await call.enqueue(number) for number in range(5)]
            rows = await all_final(app, [handle.id for handle in handles], within=20)
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert {row.counters.attempts for row in rows.values()} == {0}
    assert (await states(app))["u#a"] is GateState.PARKED


async def test_a_task_does_not_fail_over_to_a_key_of_another_kind(app: Tidegate) -> None:
    upstream = app.upstream("u", keys=[Key("a", env="KEY_A"), Key("b", env="KEY_B", kind="paid")])
    async with httpx2.AsyncClient(transport=upstream.transport(throttles("secret-a", 1.2))) as client:
        seen: list[tuple[float, int]] = []

        @app.task(name="t", upstream=upstream, max_attempts=1)
        async def call() -> None:
            answer = await client.post("http://provider/", json={})
            seen.append((time.monotonic(), answer.status_code))
            answer.raise_for_status()

        async def tried_twice() -> bool:
            return len(seen) >= 2

        async with app.worker():
            await call.enqueue()
            await until(tried_twice, what="it was tried twice")
    assert [status for _, status in seen] == [429, 429], "only with its own kind"
    assert seen[1][0] - seen[0][0] >= 1.2, "not before its key was free"
    assert (await states(app))["u#b"] is GateState.FLOWING


async def test_the_alert_names_the_key_and_the_upstream_only_when_none_is_left(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    revoked = Failure(Verdict.PERMANENT, Reason.AUTH, message="revoked")
    upstream = app.upstream("u", keys=[Key("a", env="KEY_A"), Key("b", env="KEY_B")])
    await (await upstream.permits.acquire(PermitRequest())).settle(CallResult(revoked, 401))
    assert "key u#a is parked until a person opens it" in caplog.text
    assert "upstream u" not in caplog.text
    await (await upstream.permits.acquire(PermitRequest())).settle(CallResult(revoked, 401))
    assert "key u#b is parked until a person opens it" in caplog.text
    assert "upstream u, of which no key is left, is parked until a person opens it" in caplog.text


async def test_a_redirect_to_another_host_takes_no_key_with_it(app: Tidegate) -> None:
    upstream = app.upstream("u", keys=[Key("a", env="KEY_A")])
    sent: list[tuple[str, str | None]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append((request.url.host, request.headers.get("authorization")))
        targets = {"/other": "http://elsewhere/", "/own": "http://provider/done"}
        target = targets.get(request.url.path)
        return httpx2.Response(200, json={}) if target is None else _redirect(target)

    transport = upstream.transport(httpx2.MockTransport(answer))
    async with httpx2.AsyncClient(transport=transport, follow_redirects=True) as client:
        await client.post("http://provider/own", json={})
        await client.post("http://provider/other", json={})
        await client.post("http://provider/done", json={})

    def plainly() -> None:
        with httpx2.Client(transport=transport, follow_redirects=True) as client:
            client.post("http://provider/other", json={})

    await asyncio.to_thread(plainly)
    mine, nobodys = ("provider", "Bearer secret-a"), ("elsewhere", None)
    assert sent == [mine, mine, mine, nobodys, mine, mine, nobodys]


def _redirect(target: str) -> httpx2.Response:
    return httpx2.Response(307, headers={"location": target}, json={})


async def test_an_upstream_without_keys_opens_with_the_key_that_a_person_opens(app: Tidegate) -> None:
    revoked = Failure(Verdict.PERMANENT, Reason.AUTH, message="revoked")
    upstream = app.upstream("u", keys=[Key("a", env="KEY_A")])
    await (await upstream.permits.acquire(PermitRequest())).settle(CallResult(revoked, 401))
    assert set((await states(app)).values()) == {GateState.PARKED}
    assert await core_of(app).store.open_gate("u#a")
    assert set((await states(app)).values()) == {GateState.FLOWING}
    await core_of(app).store.park_gate("u", seconds=None, why="a person's own word")
    assert await core_of(app).store.open_gate("u#a")
    assert (await states(app))["u"] is GateState.PARKED


async def test_a_function_that_calls_without_the_transport_parks_the_upstream_too(app: Tidegate) -> None:
    upstream = app.upstream("u", keys=[Key("a", env="KEY_A"), Key("b", env="KEY_B")])
    calls: list[float] = []

    @app.task(name="t", upstream=upstream, max_attempts=1)
    async def call() -> None:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise RetryAfter(0.7, "slow down")

    async with app.worker():
        first = await call.enqueue()
        await until(lambda: _parks(app, "u"), what="the upstream parks")
        rest = [await call.enqueue() for _ in range(3)]
        await all_final(app, [handle.id for handle in (first, *rest)])
    assert min(calls[1:]) - calls[0] >= 0.7


async def _parks(app: Tidegate, name: str) -> bool:
    return (await states(app))[name] is GateState.PARKED
