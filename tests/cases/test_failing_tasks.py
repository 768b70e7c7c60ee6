"""What a failure means for the task, run by a real worker."""

from __future__ import annotations

import threading
import urllib.error
from email.message import Message
from typing import Any

import pytest

from support import all_final
from tidegate import (
    Context,
    Failure,
    Fixed,
    Permanent,
    Reason,
    ResultTimeoutError,
    RetryAfter,
    State,
    TaskFailedError,
    Tidegate,
    Transient,
    Verdict,
    discard,
    on,
)
from tidegate.domain.states import FINAL
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio
QUICK = Fixed(0.01)


class ApiError(Exception):
    """Cannot be rebuilt from its arguments, as many SDKs' errors cannot."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a}{b}")
        self.lock = threading.Lock()


class StatusError(Exception):
    def __init__(self, status: int, headers: dict[str, str] | None = None, body: Any = None) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.response = type("Response", (), {"status_code": status, "headers": headers or {}})()
        self.body = body


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def run_one(
    app: Tidegate, body: Any, *args: Any, using: dict[str, Any] | None = None, **settings: Any
) -> Any:
    """Run one task to its end; return its row, its history's runs and its handle."""
    function = app.task(name="t", **({"backoff": QUICK} | settings))(body)
    async with app.worker():
        handle = await function.using(**(using or {})).enqueue(*args)
        rows = await all_final(app, [handle.id])
    runs = [entry for entry in await handle.history() if entry.kind == "run"]
    return rows[handle.id], runs, handle


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ValueError("boom\x00tail"), "boom"),
        (ValueError("boom\ud800tail"), "boom"),
        (ValueError("x" * 3_000_000), "xxx"),
        (BrokenText(), ""),
    ],
)
async def test_an_unstorable_error_message_is_recorded_and_the_task_continues(
    app: Tidegate, error: Exception, kept: str
) -> None:
    async def body() -> None:
        raise error

    row, runs, _ = await run_one(app, body, max_attempts=2)

    assert row.state is State.DEAD
    assert [run.outcome for run in runs] == ["retrying", "dead"]
    assert kept in runs[0].message
    assert len(runs[0].message) < 5_000
    assert type(error).__name__ in runs[0].error_class
    runs[0].message.encode()


async def test_an_exception_that_cannot_be_rebuilt_is_recorded_by_name_and_message(app: Tidegate) -> None:
    async def body() -> None:
        raise ApiError(1, 2)

    row, runs, _ = await run_one(app, body, max_attempts=2)

    assert row.state is State.DEAD
    assert runs[-1].error_class.endswith("ApiError")
    assert runs[-1].message == "12"
    assert "ApiError" in runs[-1].traceback


async def test_a_group_and_a_cycle_of_causes_do_not_hang_the_recording(app: Tidegate) -> None:
    async def body() -> None:
        first, second = ValueError("first"), ValueError("second")
        first.__cause__, second.__cause__ = second, first
        raise ExceptionGroup("group", [ApiError(1, 2), first])

    row, runs, _ = await run_one(app, body, max_attempts=1)

    assert row.state is State.DEAD
    assert "ExceptionGroup" in runs[0].error_class


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_a_permanent_error_is_tried_once(app: Tidegate, status: int) -> None:
    calls = []

    async def body() -> None:
        calls.append(1)
        raise StatusError(status)

    row, runs, _ = await run_one(app, body, max_attempts=3)

    assert len(calls) == 1
    assert row.state is State.DEAD
    assert runs[0].verdict == "permanent"
    assert runs[0].status == status


@pytest.mark.parametrize(
    "error",
    [
        StatusError(408),
        StatusError(500),
        StatusError(502),
        StatusError(504),
        ConnectionResetError(),
        TimeoutError(),
    ],
)
async def test_a_transient_error_is_tried_as_often_as_allowed(app: Tidegate, error: Exception) -> None:
    calls = []

    async def body() -> None:
        calls.append(1)
        raise error

    row, runs, _ = await run_one(app, body, max_attempts=3)

    assert len(calls) == 3
    assert row.state is State.DEAD
    assert row.counters.attempts == 3
    assert [run.charge for run in runs] == ["attempt"] * 3


async def test_urllib_errors_carry_the_same_evidence(app: Tidegate) -> None:
    async def body() -> None:
        raise urllib.error.HTTPError("http://127.0.0.1/", 404, "not found", Message(), None)

    row, runs, _ = await run_one(app, body)

    assert (row.reason, runs[0].status) == ("not_found", 404)


@pytest.mark.parametrize("code", ["insufficient_quota", "credit_balance_exhausted"])
async def test_a_429_that_is_a_bill_is_not_waited_for(app: Tidegate, code: str) -> None:
    async def body() -> None:
        raise StatusError(429, {"Retry-After": "1"}, {"error": {"code": code, "type": "insufficient_quota"}})

    row, runs, _ = await run_one(app, body)

    assert (row.state, row.reason, len(runs)) == (State.DEAD, "quota", 1)


async def test_a_rate_limit_charges_no_attempt_and_its_wait_is_kept(app: Tidegate) -> None:
    import time

    at: list[float] = []

    async def body() -> str:
        at.append(time.monotonic())
        if len(at) == 1:
            raise StatusError(429, {"retry-after-ms": "300"}, {"error": {"code": "rate_limit_exceeded"}})
        return "done"

    row, runs, _ = await run_one(app, body, max_attempts=1)

    assert row.state is State.SUCCEEDED
    assert (row.counters.attempts, row.counters.parks) == (0, 1)
    assert at[1] - at[0] >= 0.3
    assert "uncharged" in runs[0].why


async def test_a_rate_limit_without_a_wait_parks_the_task_for_a_minute(app: Tidegate) -> None:
    async def body() -> None:
        raise StatusError(429)

    function = app.task(name="t", backoff=QUICK)(body)
    async with app.worker():
        handle = await function.enqueue()
        from support import until

        async def parked() -> Any:
            row = await handle.status()
            return row if row.state is State.RETRYING else None

        row = await until(parked)
    runs = [entry for entry in await handle.history() if entry.kind == "run"]
    assert 60 <= (runs[0].next_run_at - runs[0].ended_at).total_seconds() <= 73
    assert row.reason == "rate_limit"


async def test_a_wait_beyond_the_deadline_ends_the_task_now_with_its_reason(app: Tidegate) -> None:
    async def body() -> None:
        raise StatusError(429, {"Retry-After": "86400"})

    row, runs, _ = await run_one(app, body, using={"deadline": 3600})

    assert (row.state, row.reason, len(runs)) == (State.DEAD, "deadline", 1)
    assert "deadline: its next run would start in 24 h, 60 min are left" in runs[0].why
    assert "give a later deadline=" in row.message
    assert "rate_limit" in runs[0].why


async def test_users_classify_failures(app: Tidegate) -> None:
    raised: list[Exception] = [RetryAfter(0.05), Transient("again"), Permanent("never")]

    async def body() -> None:
        raise raised.pop(0)

    row, runs, _ = await run_one(app, body)

    assert [run.charge for run in runs] == ["park", "attempt", "attempt"]
    assert [run.outcome for run in runs] == ["retrying", "retrying", "dead"]
    assert row.message == "never"


async def test_rules_count_their_own_attempts_and_discard_keeps_a_dead_letter(app: Tidegate) -> None:
    raised: list[Exception] = [KeyError("a"), OSError("b"), KeyError("c")]

    async def body() -> None:
        raise raised.pop(0)

    _, runs, _ = await run_one(
        app, body, max_attempts=10, retry=[on(KeyError, wait=0.01, attempts=2), on(OSError, wait=0.01)]
    )
    assert [run.outcome for run in runs] == ["retrying", "retrying", "dead"]
    assert "KeyError" in runs[-1].why

    async def bad() -> None:
        raise LookupError("gone")

    function = app.task(name="discarded", retry=[discard(LookupError)])(bad)
    async with app.worker():
        handle = await function.enqueue()
        rows = await all_final(app, [handle.id])
    assert rows[handle.id].state is State.DEAD
    assert (await core_of(app).store.list_dead_letters(_every()))[0].task_id == handle.id


def _every() -> Any:
    from tidegate.store.rows import TaskFilter

    return TaskFilter()


async def test_a_users_classifier_is_asked_before_ours_and_a_broken_one_is_passed_over(app: Tidegate) -> None:
    @app.classifier
    def broken(error: BaseException) -> Failure | None:
        raise RuntimeError("not me")

    @app.classifier
    def ours(error: BaseException) -> Failure | None:
        if "house rule" in str(error):
            return Failure(Verdict.PERMANENT, Reason.CONTENT_POLICY, message=str(error))
        return None

    async def body() -> None:
        raise OSError("against a house rule")

    row, runs, _ = await run_one(app, body)

    assert (row.state, row.reason, len(runs)) == (State.DEAD, "content_policy", 1)


@pytest.mark.parametrize(("on_unknown", "runs_expected"), [("retry", 3), ("dead", 1)])
async def test_an_unknown_failure_follows_the_stated_rule(
    app: Tidegate, on_unknown: str, runs_expected: int
) -> None:
    class Odd(Exception):
        pass

    async def body() -> None:
        raise Odd("what is this?")

    row, runs, handle = await run_one(app, body, on_unknown=on_unknown)

    assert (row.state, len(runs), runs[0].verdict) == (State.DEAD, runs_expected, "unknown")
    with pytest.raises(TaskFailedError, match="what is this"):
        await handle.result(1)


@pytest.mark.parametrize(
    "raised", [SystemExit(0), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("x")]
)
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_is_no_exception_is_a_failed_run_and_the_worker_goes_on(
    app: Tidegate, raised: BaseException, kind: str
) -> None:
    async def body() -> None:
        raise raised

    def sync_body() -> None:
        raise raised

    async def normal() -> str:
        return "fine"

    bad = app.task(name="bad", max_attempts=1)(body if kind == "async" else sync_body)
    good = app.task(name="good")(normal)
    async with app.worker():
        failed, behind = await bad.enqueue(), await good.enqueue()
        assert await behind.result(10) == "fine"
        rows = await all_final(app, [failed.id])
    runs = [entry for entry in await failed.history() if entry.kind == "run"]
    assert rows[failed.id].state is State.DEAD
    assert type(raised).__name__ in runs[0].error_class


async def test_a_type_error_from_inside_the_function_is_an_ordinary_failure(app: Tidegate) -> None:
    async def body(a: int) -> None:
        len(a)  # type: ignore[arg-type]

    _, runs, _ = await run_one(app, body, 1, max_attempts=2)

    assert len(runs) == 2
    assert runs[0].error_class == "TypeError"


async def test_the_context_has_the_attempt_number(app: Tidegate) -> None:
    seen: list[tuple[int, int, int]] = []

    async def body(ctx: Context) -> None:
        seen.append((ctx.run, ctx.attempt, ctx.max_attempts))
        if len(seen) == 1:
            raise RetryAfter(0.01)
        raise OSError("again")

    row, _, _ = await run_one(app, body, max_attempts=2)

    assert seen == [(1, 1, 2), (2, 1, 2), (3, 2, 2)]
    assert row.state in FINAL


async def test_waiting_for_a_result_ends_in_time_and_the_task_goes_on(app: Tidegate) -> None:
    async def body() -> None: ...

    handle = await app.task(name="t")(body).enqueue()
    with pytest.raises(ResultTimeoutError):
        await handle.result(0.1)
    assert (await handle.status()).state is State.READY
