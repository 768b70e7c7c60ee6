"""Every run gets an outcome, even if an option, rule, classifier, codec or the store fails."""

from __future__ import annotations

import asyncio
import copy
import math
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest
from executor_setup import Scene

from tidegate import Exponential, Failure, Fixed
from tidegate.codec.signature import Signature
from tidegate.context import StopReason
from tidegate.domain.failure import Reason, Verdict
from tidegate.domain.outcome import Charge, Dead, Fence, FinishStatus, Outcome, Released, Retrying, Succeeded
from tidegate.domain.spec import Rule, TaskSpec
from tidegate.store.protocol import Store
from tidegate.worker import report
from tidegate.worker.application import crash_terms
from tidegate.worker.engine.fallback_outcome import undecidable_outcome
from tidegate.worker.engine.finisher import Finisher
from tidegate.worker.engine.outcome_decider import OutcomeDecider

pytestmark = pytest.mark.anyio

FENCE = Fence("00000000-0000-7000-8000-000000000001", 1)
OK = Succeeded(FENCE, b"1", "json")


def unchecked(made: Any, **values: object) -> Any:
    """Return settings with these values, as a version without checks would have created them."""
    settings = copy.copy(made)
    for name, value in values.items():
        object.__setattr__(settings, name, value)
    return settings


def declare(scene: Scene, **broken: Any) -> None:
    """Declare a function that fails, then set options that are no longer accepted."""
    scene.lease.renew(math.inf)

    @scene.app.task(name="body", timeout=30)
    async def body() -> None:
        raise ValueError("the body's own")

    function = scene.app.function("body")
    function.spec = unchecked(function.spec, **broken)


BROKEN = {
    "backoff as text": {"backoff": "5s"},
    "backoff as a number": {"backoff": 30},
    "backoff of text": {"backoff": unchecked(Fixed(1.0), seconds="5s")},
    "a rule's wait as text": {"rules": (unchecked(Rule(ValueError), wait="5s"),)},
    "rules that are none": {"rules": 5},
    "attempts as text": {"max_attempts": "3"},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=list(BROKEN))
async def test_a_run_whose_outcome_cannot_be_decided_is_dead_and_names_what_is_broken(
    scene: Scene, broken: dict[str, Any]
) -> None:
    declare(scene, **broken)
    try:
        scene.start("body")
    except Exception as fault:  # refused before it started; the engine then writes this outcome
        outcome: Outcome | None = undecidable_outcome(FENCE, scene.app.function("body").spec, fault)
    else:
        outcome = await scene.ended()
    assert isinstance(outcome, Dead)
    assert "body" in outcome.why
    assert outcome.failure.verdict is Verdict.PERMANENT
    named = {"backoff": "backoff", "rules": "rule", "max_attempts": "max_attempts"}[next(iter(broken))]
    assert named in outcome.failure.message
    assert not scene.executor.running


@pytest.mark.parametrize("name", ["timeout", "total_timeout", "cancel_grace"])
@pytest.mark.parametrize("value", ["5s", math.nan, -1.0])
async def test_a_run_with_an_invalid_time_limit_never_starts(scene: Scene, name: str, value: Any) -> None:
    declare(scene, **{name: value})
    with pytest.raises(ValueError, match=name):
        scene.start("body")
    assert not scene.executor.running


async def test_a_time_limit_ends_a_run_whose_backoff_is_broken(scene: Scene) -> None:
    scene.lease.renew(math.inf)

    @scene.app.task(name="body", timeout=0.05)
    async def body() -> None:
        await asyncio.sleep(100)

    function = scene.app.function("body")
    function.spec = unchecked(function.spec, backoff="5s")
    scene.start("body")
    outcome = await scene.ended()
    assert isinstance(outcome, Dead)
    assert "backoff='5s'" in outcome.why
    assert "ran longer than its timeout" in outcome.failure.message


@pytest.mark.parametrize("stop", [None, *StopReason])
@pytest.mark.parametrize(
    "decision",
    ["on_return", "on_exception", "on_retry_request", "on_stop", "from_exception", "on_release", "on_crash"],
)
async def test_no_method_of_the_decider_raises(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, decision: str, stop: StopReason | None
) -> None:
    def broken(*args: object, **kwargs: object) -> Any:
        raise KeyError("broken")

    declare(scene)
    task_run = scene.start("body")
    task_run.control.stop = stop
    decider = OutcomeDecider(clock=broken, wall_clock=broken, rng=random.Random(1), classifiers=(broken,))
    for name in (
        "classify",
        "decide_orphan",
        "Succeeded",
        "Released",
        "Cancelled",
        "dead_if_run_once",
        "format_duration",
    ):
        monkeypatch.setattr(f"tidegate.worker.engine.outcome_decider.{name}", broken)
    given: dict[str, tuple[object, ...]] = {
        "on_return": (1,), "on_exception": (ValueError(),), "from_exception": (ValueError(),), "on_release": ("",),
        "on_crash": ("",),
    }  # fmt: skip
    outcome = getattr(decider, decision)(task_run, *given.get(decision, ()))
    if decision not in ("on_retry_request", "on_stop") and stop is not StopReason.LOST:
        assert isinstance(outcome, Dead | Released)
    if stop is StopReason.LOST:
        assert outcome is None


async def test_a_result_whose_encoding_fails_has_a_stand_in_since_the_work_is_done(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.lease.renew(math.inf)

    @scene.app.task(name="body")
    async def body() -> int:
        return 1

    def broken(signature: Signature, value: object, limit: int = 0) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(Signature, "encode_result", broken)
    scene.start("body")
    outcome = await scene.ended()
    assert isinstance(outcome, Succeeded)
    assert b"RuntimeError while encoding" in outcome.result


@pytest.mark.parametrize(
    ("columns", "limit", "fix"),
    [
        ({"spent_seconds": 63.18, "deadline_at": 60.0}, "total timeout", "raise total_timeout="),
        ({"spent_seconds": 0.0, "deadline_at": -3.18}, "deadline", "give a later deadline="),
    ],
)
async def test_a_task_out_of_time_names_the_limit_the_setting_and_how_long_it_had_run(
    scene: Scene, columns: dict[str, float], limit: str, fix: str
) -> None:
    declare(scene)
    task_run = scene.start("body", total_timeout_seconds=60.0, **columns)
    task_run.control.stop = StopReason.DEADLINE
    decider = OutcomeDecider(
        clock=lambda: task_run.control.started_at + 2.0, wall_clock=lambda: 0.0, rng=random.Random(1)
    )
    not_started = decider.on_stop(task_run)
    task_run.has_started = True
    stopped = decider.on_stop(task_run)
    assert isinstance(not_started, Dead)
    assert isinstance(stopped, Dead)
    assert not_started.failure.message == f"its {limit} passed before it was started: {fix}"
    assert stopped.failure.message == f"stopped by its {limit} after it had run for 2 s: {fix}"


def test_each_lost_process_is_logged_as_a_crash_not_as_an_unknown_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failure = Failure(Verdict.UNKNOWN, Reason.CRASH, message="worker lost: memory limit 512 MiB passed")
    for run in (1, 2):
        report.failed_outcome("app:hog", Retrying(
            FENCE._replace(run=run), failure, 0.0, Charge.CRASH, 0.0,
            why="crash 1 of 3, uncharged: memory limit 512 MiB passed",
        ))  # fmt: skip
    assert [record.getMessage() for record in caplog.records] == [
        f"crashed: app:hog {FENCE.task_id}, run {run}: crash 1 of 3, uncharged: memory limit 512 MiB passed"
        for run in (1, 2)
    ]


def test_the_fallback_outcome_names_the_fault_and_keeps_the_original_failure() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    before = Failure(Verdict.TRANSIENT, Reason.SERVER_ERROR, message="503", error_class="HTTPError")
    spec = unchecked(TaskSpec("app:f"), backoff=Odd())
    dead = undecidable_outcome(FENCE, spec, KeyError("x"), before)
    assert dead.failure.reason is Reason.SERVER_ERROR
    assert "app:f" in dead.why
    assert "backoff=" in dead.why
    assert "HTTPError: 503" in dead.failure.message
    assert dead.failure.error_class == "KeyError"
    assert "KeyError" in undecidable_outcome(FENCE, TaskSpec("app:f"), KeyError("x")).why


@pytest.mark.parametrize(
    "broken",
    [
        {"backoff": 30},
        {"backoff": "5s"},
        {"backoff": unchecked(Exponential(), base=math.nan)},
        {"backoff": unchecked(Fixed(1.0), seconds=math.inf)},
        {"backoff": unchecked(Fixed(1.0), seconds=-3.0)},
        {"max_attempts": "3"},
    ],
)
def test_a_broken_option_of_one_function_does_not_stop_claims(broken: dict[str, Any]) -> None:
    terms = crash_terms(unchecked(TaskSpec("app:f"), **broken))
    assert 0 <= terms.base_seconds <= terms.max_seconds < math.inf
    assert terms.crash_limit == 3


class RefusingStore:
    """A store that cannot write some outcomes, as if they held a value of an unknown type."""

    def __init__(self, refused: type, *, always: bool = False) -> None:
        self._refused = refused
        self._always = always
        self.written: list[Outcome] = []

    async def finish(self, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
        if self._always or any(isinstance(outcome, self._refused) for outcome in outcomes):
            raise TypeError("not storable")
        self.written += outcomes
        return [FinishStatus.DONE] * len(outcomes)

    async def save_progress(self, notes: object) -> list[Fence]:
        raise TypeError("not storable")


async def test_an_outcome_that_cannot_be_written_blocks_no_other_and_its_task_is_dead() -> None:
    store = RefusingStore(Retrying)
    finisher = Finisher(cast("Store", store), random.Random(1), lambda fence: None)
    bad = Retrying(
        FENCE, Failure(Verdict.UNKNOWN, Reason.UNKNOWN), cast("float", "5s"), Charge.ATTEMPT, 0.0, why=""
    )
    good = [Succeeded(Fence(f"00000000-0000-7000-8000-00000000001{n}", 1), b"1", "json") for n in range(3)]
    for outcome in (good[0], bad, *good[1:]):
        finisher.finish(outcome)
    writing = asyncio.create_task(finisher.run())
    async with asyncio.timeout(10):
        await finisher.wait_until_written()
    writing.cancel()
    assert store.written[:3] == good
    (dead,) = store.written[3:]
    assert isinstance(dead, Dead)
    assert dead.fence == FENCE
    assert "TypeError: not storable" in dead.why
    assert finisher.pending == 0


async def test_a_store_that_refuses_every_write_is_retried_and_no_outcome_is_dropped() -> None:
    store = RefusingStore(type(None), always=True)
    finisher = Finisher(cast("Store", store), random.Random(1), lambda fence: None)
    finisher.finish(OK)
    writing = asyncio.create_task(finisher.run())
    await asyncio.sleep(0.05)
    assert finisher.pending == 1
    store._always = False
    async with asyncio.timeout(10):
        await finisher.wait_until_written()
    writing.cancel()


async def test_progress_and_chunks_that_cannot_be_written_do_not_keep_runs_open() -> None:
    async def broken() -> None:
        raise KeyError("broken")

    from tidegate.context import Progress

    store = RefusingStore(Retrying)
    finisher = Finisher(cast("Store", store), random.Random(1), lambda fence: None, before_write=broken)
    finisher.record_progress(FENCE, Progress(1.0, None, ""))
    finisher.finish(OK)
    writing = asyncio.create_task(finisher.run())
    async with asyncio.timeout(10):
        await finisher.wait_until_written()
    writing.cancel()
    assert store.written == [OK]
