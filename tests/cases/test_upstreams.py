"""Real workers and upstreams: gates park, limits hold for all workers, and waiting is not charged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support import FAST, all_final, make_app, until
from tidegate import Fixed, OptionError, Pool, State, Tidegate
from tidegate.internals import core_of
from tidegate.limits.options import changed_limits
from tidegate.limits.values import GateState
from tidegate.store.upstream_rows import UpstreamRow

pytestmark = pytest.mark.anyio


class AnswerError(Exception):
    """What an HTTP client raises: a status, perhaps with a code."""

    def __init__(self, status: int, code: str = "") -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.body = {"error": {"code": code}}


async def gate_of(app: Tidegate, name: str) -> UpstreamRow:
    rows = await (await core_of(app).opened_store()).list_upstreams()
    return next(row for row in rows if row.name == name)


def at_most(moments: list[float], count: int, seconds: float) -> None:
    moments = sorted(moments)
    for at in moments:
        assert sum(at <= other < at + seconds for other in moments) <= count


async def test_waiting_for_a_limit_costs_no_attempt(app: Tidegate) -> None:
    upstream = app.upstream("u", requests_per_second=20)
    starts: list[float] = []

    @app.task(name="t", upstream=upstream, max_attempts=1)
    async def call() -> None:
        starts.append(time.monotonic())

    async with app.worker():
        handles = [await call.enqueue() for _ in range(30)]
        rows = await all_final(app, [handle.id for handle in handles])
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert {(row.run, row.counters.attempts, row.counters.parks) for row in rows.values()} == {(1, 0, 0)}
    assert max(starts) - min(starts) >= 0.9
    at_most(starts, 20 + 10 + 2, 1.0)


async def test_the_rate_limit_of_a_function_holds_for_all_workers_and_for_no_other_function(
    app: Tidegate,
) -> None:
    starts: list[float] = []

    @app.task(name="slow", rate_limit="20/s")
    async def slow() -> None:
        starts.append(time.monotonic())

    @app.task(name="free")
    async def free() -> None: ...

    async with app.worker(), app.worker():
        slows = [await slow.enqueue() for _ in range(30)]
        await asyncio.wait_for((await free.enqueue()).result(), 5)
        assert len(starts) < 30
        await all_final(app, [handle.id for handle in slows])
    at_most(starts, 20 + 10 + 2, 1.0)


async def test_a_429_parks_the_upstream_and_other_tasks_run_on(app: Tidegate) -> None:
    upstream = app.upstream("u")
    calls: list[float] = []

    @app.task(name="t", upstream=upstream, max_attempts=1)
    async def call() -> None:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise _rate_limited(0.7)

    @app.task(name="free")
    async def free() -> str:
        return "free"

    async with app.worker():
        first = await call.enqueue()
        await until(lambda: _is_parked(app), what="the gate is parked")
        rest = [await call.enqueue() for _ in range(5)]
        assert await (await free.enqueue()).result(5) == "free"
        (stats,) = await core_of(app).store.get_queue_stats()
        assert (stats.ready, stats.blocked) == (0, 5)
        rows = await all_final(app, [first.id, *(handle.id for handle in rest)])
    assert calls[1] - calls[0] >= 0.7
    assert len(calls) == 7
    assert rows[first.id].counters.parks == 1
    assert {row.counters.attempts for row in rows.values()} == {0}


def _rate_limited(seconds: float) -> Exception:
    error = AnswerError(429)
    error.headers = {"retry-after": str(seconds)}  # type: ignore[attr-defined]
    return error


async def _is_parked(app: Tidegate) -> bool:
    return (await gate_of(app, "u")).gate.state is not GateState.FLOWING


async def test_an_empty_account_parks_with_an_alert_until_a_person_opens(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    upstream = app.upstream("u")
    calls = 0
    is_mended = False

    @app.task(name="t", upstream=upstream, max_attempts=2)
    async def call() -> None:
        nonlocal calls
        calls += 1
        if not is_mended:
            raise AnswerError(429, "insufficient_quota")

    with caplog.at_level(logging.ERROR, logger="tidegate.worker"):
        async with app.worker():
            handles = [await call.enqueue()]
            await until(lambda: _is_parked(app), what="the gate is parked")
            handles += [await call.enqueue() for _ in range(4)]
            await asyncio.sleep(0.3)  # long enough for many looks for work
            assert calls == 1
            is_mended = True
            assert await core_of(app).store.open_gate("u")
            rows = await all_final(app, [handle.id for handle in handles])
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert "upstream u is parked until a person opens it" in caplog.text


async def test_an_outage_is_met_by_single_probes_and_kills_no_task(tmp_path: Path) -> None:
    async with _app(tmp_path, retries_per_minute=6_000) as app:
        upstream = app.upstream("u", slow_start=0.5, retries_per_minute=6_000)
        calls: list[tuple[float, bool]] = []
        is_down = True

        @app.task(name="t", upstream=upstream, max_attempts=3, backoff=Fixed(30))
        async def call() -> None:
            calls.append((time.monotonic(), is_down))
            await asyncio.sleep(0.02)
            if is_down:
                raise AnswerError(500)

        async with app.worker():
            handles = [await call.enqueue() for _ in range(60)]
            await until(lambda: _is_parked(app), what="the gate is parked")
            await asyncio.sleep(2.5)
            is_down = False
            rows = await all_final(app, [handle.id for handle in handles])
    down = [at for at, was_down in calls if was_down]
    assert len(down) <= 10 + 5 + 3, "those in flight and one probe a second"
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert max(row.counters.attempts for row in rows.values()) <= 1


async def test_a_storm_of_retries_is_spread_by_the_system_wide_budget(tmp_path: Path) -> None:
    async with _app(tmp_path, retries_per_minute=1_200, retry_window=1.0) as app:
        first, again = set[int](), list[float]()

        @app.task(name="t", max_attempts=10, backoff=Fixed(0.1))
        async def call(number: int) -> None:
            if number not in first:
                first.add(number)
                raise ConnectionResetError("reset")
            again.append(time.monotonic())

        async with app.worker():
            handles = [await call.enqueue(number) for number in range(60)]
            rows = await all_final(app, [handle.id for handle in handles])
        budget = (await core_of(app).store.list_retry_budgets())[0]
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    at_most(again, 20 + 4, 1.0)
    assert budget.amount == 20


async def test_twenty_thousand_blocked_tasks_do_not_delay_others(app: Tidegate) -> None:
    upstream = app.upstream("u", requests_per_minute=1)

    @app.task(name="blocked", upstream=upstream, priority="interactive")
    async def blocked() -> None: ...

    @app.task(name="free", priority="bulk")
    async def free() -> None:
        await asyncio.sleep(0.01)

    await app.enqueue_many([blocked.prepare() for _ in range(20_000)])
    async with app.worker(), app.worker():
        begun = time.monotonic()
        handles = [await free.enqueue() for _ in range(50)]
        await all_final(app, [handle.id for handle in handles])
        assert time.monotonic() - begun < 10
        (stats,) = await core_of(app).store.get_queue_stats()
    assert stats.ready + stats.paced + stats.blocked >= 19_998


async def test_the_code_of_the_latest_worker_counts_and_it_logs_what_it_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _app(tmp_path) as one, _app(tmp_path) as other:
        one.upstream("u", requests_per_minute=120, max_in_flight=4)
        other.upstream("u", requests_per_minute=900, max_in_flight=4)
        with caplog.at_level(logging.INFO, logger="tidegate.worker"):
            async with one.worker():
                assert "limits of u" not in caplog.text
            async with other.worker():
                row = await gate_of(one, "u")
    assert [window.amount for window in row.limits.windows] == [900]
    assert "limits of u: requests_per_minute was 120, is 900 now, as declared here" in caplog.text


async def test_a_manual_limit_wins_and_the_warning_names_the_command_that_resets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _app(tmp_path) as app:
        app.upstream("u", requests_per_minute=500, max_in_flight=4)
        async with app.worker():
            limits = (await gate_of(app, "u")).limits
            await core_of(app).store.set_limits("u", changed_limits(limits, {"requests_per_minute": 600}))
        async with app.worker():
            row = await gate_of(app, "u")
    assert [window.amount for window in row.limits.windows] == [600]
    assert "requests_per_minute is 600, declared here as 500" in caplog.text
    assert "tidegate upstreams set u requests_per_minute=code" in caplog.text
    assert "max_in_flight is" not in caplog.text


@pytest.mark.parametrize(
    "limits",
    [
        {"requests_per_minute": 0},
        {"max_in_flight": -1},
        {"requests_per_day": 1.5},
        {"retries_per_minute": 0},
        {"requests": 5},
    ],
)
async def test_limits_that_cannot_work_are_refused_at_once(app: Tidegate, limits: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=next(iter(limits))):
        app.upstream("u", **limits)  # type: ignore[arg-type]


async def test_unknown_upstreams_and_unreadable_rates_are_refused_at_once(app: Tidegate) -> None:
    with pytest.raises(OptionError, match="no upstream is named 'opnai'"):
        app.task(upstream="opnai")
    for rate in ("50", "50/month", "0/min", "-5/s", "many"):
        with pytest.raises(OptionError, match="rate_limit="):
            app.task(rate_limit=rate)
    for rate in ("50/min", "50/minute", "50 / m", "1/hour", "1/day", "2/second"):
        app.task(rate_limit=rate)
    app.upstream("u", requests_per_minute=5)
    app.upstream("u", requests_per_minute=5)
    with pytest.raises(OptionError, match="declared twice"):
        app.upstream("u", requests_per_minute=6)


@asynccontextmanager
async def _app(directory: Path, **options: object) -> AsyncIterator[Tidegate]:
    app = make_app(directory, timings=FAST, pools=[Pool(concurrency=10, poll_interval=0.05)], **options)
    try:
        yield app
    finally:
        await app.aclose()


async def test_another_way_to_count_a_window_is_taken_from_the_code(tmp_path: Path) -> None:
    async with _app(tmp_path) as one, _app(tmp_path) as other:
        one.upstream("u", requests_per_minute=100)
        other.upstream("u", requests_per_minute=100, fixed_windows=True)
        async with one.worker(), other.worker():
            row = await gate_of(one, "u")
    assert [window.is_fixed for window in row.limits.windows] == [True]
