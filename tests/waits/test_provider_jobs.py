"""`ctx.remote` and `ctx.remote_batch` by the clock of a test, against a provider in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tidegate import (
    Context,
    Pending,
    ProviderJobFailedError,
    ProviderJobTimeoutError,
    State,
    Tidegate,
)
from tidegate.domain.provider_job import CANCELLING_LABEL, JobState
from tidegate.errors import ArgumentsError, OptionError, UsageError
from tidegate.store.provider_job_rows import ProviderJobRow
from tidegate.testing import Kit

app = Tidegate("sqlite:///never-opened.db")


class Provider:
    """A provider whose jobs are done after a number of polls."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        """The idempotency keys of the submissions, in order: job n has key n."""
        self.polls: list[str] = []
        self.cancelled: list[str] = []
        self.needed = 3
        self.answers: list[Any] = []
        """What the next polls return or raise, before the usual answers."""
        self.cancel_errors: list[Exception] = []

    def submit(self, key: str) -> str:
        self.keys.append(key)
        return f"job_{len(self.keys)}"

    def poll(self, job_id: str) -> Any:
        self.polls.append(job_id)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if self.polls.count(job_id) < self.needed:
            return Pending()
        return f"result of {job_id}"

    def cancel(self, job_id: str) -> None:
        if self.cancel_errors:
            raise self.cancel_errors.pop(0)
        self.cancelled.append(job_id)


provider = Provider()
options: dict[str, Any] = {}


@dataclass
class Video:
    url: str


@app.task(max_attempts=2, backoff="1m")
async def draw(ctx: Context) -> Any:
    async def submit() -> str:
        return provider.submit(ctx.idempotency_key)

    async def poll(job_id: str) -> Any:
        return provider.poll(job_id)

    return await ctx.remote("video", submit, poll, **{"every": "1m", **options})


@app.task(max_attempts=2, backoff="1m")
def draw_plainly(ctx: Context) -> Any:
    def submit() -> str:
        return provider.submit(ctx.idempotency_key)

    return ctx.remote_sync("video", submit, provider.poll, **{"every": "1m", **options})


@app.task(max_attempts=2, backoff="1m")
async def fails_afterwards(ctx: Context) -> Any:
    result = await ctx.remote("video", lambda: provider.submit(""), provider.poll, every="1m")
    if ctx.attempt == 1:
        raise ConnectionError("gone")
    return result


@app.task
async def fails_and_goes_on(ctx: Context) -> str:
    try:
        await ctx.remote("first", lambda: provider.submit(""), provider.poll, every="1m")
    except ProviderJobFailedError as failed:
        reason = failed.message
    return reason + await ctx.remote("second", lambda: provider.submit(""), provider.poll, every="1m")


@app.task
async def two_at_once(ctx: Context) -> list[str]:
    def submit(prompt: str) -> str:
        return provider.submit(prompt)

    def poll(job_id: str) -> Pending | str:
        answer: Pending | str = provider.poll(job_id)
        return answer

    return await asyncio.gather(
        *(ctx.remote("video", submit, poll, prompt, every="1m") for prompt in ("cat", "dog"))
    )


@app.task
async def typed(ctx: Context) -> str:
    async def poll(job_id: str) -> Pending | Video:
        return Video(f"https://example.com/{job_id}")

    video = await ctx.remote("video", lambda: provider.submit(""), poll)
    await ctx.sleep("1h")
    return video.url


@app.task
async def inside_a_step(ctx: Context) -> Any:
    async def nested() -> Any:
        return await ctx.remote("video", lambda: provider.submit(""), provider.poll)

    return await ctx.step("outer", nested)


@app.task(max_attempts=1)
async def batch(ctx: Context, count: int) -> dict[str, int]:
    def submit(items: dict[str, int]) -> str:
        submitted.append(dict(items))
        return provider.submit(ctx.idempotency_key)

    def poll(job_id: str) -> Pending | Mapping[str, int]:
        answer: Pending | Mapping[str, int] = provider.poll(job_id)
        return answer

    items = {f"item-{number}": number for number in range(count)}
    return await ctx.remote_batch("batch", items, submit, poll, every="1m", **options)


submitted: list[dict[str, int]] = []


@pytest.fixture
def kit() -> Iterator[Kit]:
    global provider
    provider = Provider()
    options.clear()
    submitted.clear()
    with Kit(app) as kit:
        yield kit


def states(kit: Kit) -> list[State]:
    return [task.state for task in kit.enqueued()]


def the_job(kit: Kit, task_id: str) -> ProviderJobRow:
    [job] = jobs(kit, task_id)
    return job


def jobs(kit: Kit, task_id: str) -> list[ProviderJobRow]:
    return kit._store.now_complete(kit._store.list_provider_jobs(task_id))


BOTH = pytest.mark.parametrize("function", [draw, draw_plainly])


@BOTH
def test_a_job_is_submitted_once_and_polled_until_it_is_done(kit: Kit, function: Any) -> None:
    handle = function.enqueue_sync()
    assert kit.drain_sync().suspended == 1
    drained = kit.advance_sync(hours=24)
    assert (drained.suspended, drained.succeeded) == (2, 1)
    assert handle.result_sync(1) == "result of job_1"
    assert len(provider.keys) == 1
    assert provider.polls == ["job_1"] * 3
    assert provider.keys[0].startswith(handle.id)


def test_polls_charge_no_attempt(kit: Kit) -> None:
    draw.enqueue_sync()
    kit.advance_sync(hours=1)
    [task] = kit.enqueued()
    assert (task.state, task.attempts) == (State.SUCCEEDED, 0)


@BOTH
def test_the_task_says_what_it_waits_for(kit: Kit, function: Any) -> None:
    provider.answers = [Pending(done=3, total=10, note="in line")]
    handle = function.enqueue_sync()
    options["provider"] = "openai"
    kit.drain_sync()
    kit.advance_sync("70s")
    why = "waits for provider job job_1 at openai, polled 1 time (3 of 10 done, in line)"
    [row] = kit._store.now_complete(kit._store.read_tasks([handle.id])).values()
    assert row.state is State.SUSPENDED
    assert row.message.startswith(f"{why}, next at 20")
    job = the_job(kit, handle.id)
    assert (job.state, job.job_id, job.provider, job.polls) == (JobState.RUNNING, "job_1", "openai", 1)
    assert (job.done, job.total, job.note) == (3, 10, "in line")
    assert (row.progress_done, row.progress_total, row.progress_note) == (3, 10, "in line")


def test_a_poll_may_say_when_to_ask_again(kit: Kit) -> None:
    provider.answers = [Pending(after="2h")]
    draw.enqueue_sync()
    kit.drain_sync()
    kit.advance_sync("2m")
    assert provider.polls == ["job_1"]
    kit.advance_sync("110m")
    assert provider.polls == ["job_1"]
    kit.advance_sync("15m")
    assert len(provider.polls) >= 2


def test_the_pauses_between_polls_grow_up_to_the_longest(kit: Kit) -> None:
    options.update(max_every="4m")
    provider.needed = 1_000
    handle = draw.enqueue_sync()
    kit.advance_sync("10h")
    assert 130 < len(provider.polls) < 170  # one in 4 minutes; one a minute would be 600
    assert the_job(kit, handle.id).polls == len(provider.polls)


@BOTH
def test_a_poll_that_fails_for_a_reason_that_may_pass_is_repeated(kit: Kit, function: Any) -> None:
    provider.answers = [ConnectionError("reset"), TimeoutError("slow"), ConnectionError("reset")]
    handle = function.enqueue_sync()
    kit.advance_sync("2h")
    assert handle.result_sync(1) == "result of job_1"
    assert len(provider.keys) == 1
    assert [task.attempts for task in kit.enqueued()] == [0]
    assert the_job(kit, handle.id).failed_polls == 0


@BOTH
def test_after_too_many_failed_polls_an_attempt_is_charged_and_the_next_run_polls_on(
    kit: Kit, function: Any
) -> None:
    options["max_poll_failures"] = 2
    provider.answers = [ConnectionError("reset")] * 2
    handle = function.enqueue_sync()
    drained = kit.advance_sync("1h", raise_on_failure=False)
    assert [run.outcome for run in drained.runs if run.outcome not in ("suspended", "succeeded")] == [
        "retrying"
    ]
    assert handle.result_sync(1) == "result of job_1"
    assert len(provider.keys) == 1
    assert [task.attempts for task in kit.enqueued()] == [1]


def test_a_poll_with_a_bug_fails_the_task_and_a_redrive_goes_on_with_the_same_job(kit: Kit) -> None:
    provider.answers = [ValueError("bug"), ValueError("bug")]
    handle = draw.enqueue_sync()
    drained = kit.advance_sync("1h", raise_on_failure=False)
    assert states(kit) == [State.DEAD]
    assert isinstance(drained.failures[-1].error, ValueError)
    app.admin.dead_letters.redrive_sync([handle.id])
    kit.advance_sync("1h")
    assert handle.result_sync(1) == "result of job_1"
    assert len(provider.keys) == 1


def test_a_retry_after_a_later_failure_does_not_submit_again(kit: Kit) -> None:
    handle = fails_afterwards.using(max_attempts=2).enqueue_sync()
    kit.advance_sync("1h", raise_on_failure=False)
    assert handle.result_sync(1) == "result of job_1"
    assert len(provider.keys) == 1
    assert len(provider.polls) == 3


@BOTH
def test_a_job_that_failed_makes_a_dead_letter_and_a_redrive_submits_it_once_more(
    kit: Kit, function: Any
) -> None:
    provider.answers = [ProviderJobFailedError("the prompt was refused")]
    handle = function.enqueue_sync()
    drained = kit.advance_sync("1h", raise_on_failure=False)
    assert [(run.outcome, run.reason) for run in drained.failures] == [("dead", "rejected")]
    job = the_job(kit, handle.id)
    assert (job.state, job.error) == (JobState.FAILED, "the prompt was refused")
    app.admin.dead_letters.redrive_sync([handle.id])
    kit.advance_sync("1h")
    assert handle.result_sync(1) == "result of job_2"
    assert len(set(provider.keys)) == 2
    assert the_job(kit, handle.id).generation == 2


def test_a_failed_job_that_the_function_handles_is_not_submitted_again(kit: Kit) -> None:
    provider.answers = [ProviderJobFailedError("refused ")]
    handle = fails_and_goes_on.enqueue_sync()
    kit.advance_sync("1h")
    assert handle.result_sync(1) == "refused result of job_2"
    assert len(provider.keys) == 2


@BOTH
def test_a_job_that_takes_too_long_is_cancelled_and_the_task_is_dead(kit: Kit, function: Any) -> None:
    options.update(timeout="26h", cancel=provider.cancel)
    provider.needed = 10_000
    handle = function.enqueue_sync()
    kit.advance_sync("25h")
    assert provider.cancelled == []
    drained = kit.advance_sync("2h", raise_on_failure=False)
    assert [(run.outcome, run.reason) for run in drained.failures] == [("dead", "timeout")]
    assert isinstance(drained.failures[0].error, ProviderJobTimeoutError)
    assert provider.cancelled == ["job_1"]
    assert the_job(kit, handle.id).state is JobState.TIMED_OUT


def test_a_job_that_took_too_long_and_cannot_be_cancelled_goes_on_after_a_redrive(kit: Kit) -> None:
    options.update(timeout="26h")
    provider.needed = 10_000
    handle = draw.enqueue_sync()
    kit.advance_sync("27h", raise_on_failure=False)
    provider.needed = 1
    app.admin.dead_letters.redrive_sync([handle.id])
    kit.advance_sync("1h")
    assert handle.result_sync(1) == "result of job_1"


def test_a_job_that_is_done_is_not_too_late(kit: Kit) -> None:
    """The result of a job is asked for before it is given up: it is paid for."""
    options.update(timeout="2h", cancel=provider.cancel)
    provider.answers = [Pending(after="3h")]
    provider.needed = 2
    handle = draw.enqueue_sync()
    kit.advance_sync("4h")
    assert handle.result_sync(1) == "result of job_1"
    assert provider.cancelled == []


def test_a_job_that_is_late_is_not_polled_without_a_pause_while_the_provider_is_away(kit: Kit) -> None:
    options.update(timeout="1h", max_every="5m")
    provider.answers = [Pending(after="50m"), *[ConnectionError("reset")] * 12]
    provider.needed = 14
    handle = draw.enqueue_sync()
    kit.advance_sync("70m")
    assert 5 <= len(provider.polls) <= 9
    kit.advance_sync("2h")
    assert handle.result_sync(1) == "result of job_1"


def test_a_provider_that_says_at_once_is_not_asked_without_a_pause(kit: Kit) -> None:
    provider.answers = [Pending(after=0)] * 3
    provider.needed = 4
    options.update(every="1s", max_every="1s")
    started = kit.now()
    draw.enqueue_sync()
    assert kit.drain_sync().succeeded == 1
    assert len(provider.polls) == 4
    assert (kit.now() - started).total_seconds() >= 3.5


@BOTH
def test_a_suspended_task_that_is_cancelled_cancels_its_job_first(kit: Kit, function: Any) -> None:
    options["cancel"] = provider.cancel
    handle = function.enqueue_sync()
    kit.drain_sync()
    handle.cancel_sync()
    assert provider.cancelled == []
    kit.drain_sync()
    assert states(kit) == [State.CANCELLED]
    assert provider.cancelled == ["job_1"]
    assert provider.polls == []
    assert the_job(kit, handle.id).state is JobState.CANCELLED
    assert CANCELLING_LABEL not in kit.enqueued()[0].labels


def test_a_suspended_task_whose_job_cannot_be_cancelled_is_cancelled_at_once(kit: Kit) -> None:
    handle = draw.enqueue_sync()
    kit.drain_sync()
    handle.cancel_sync()
    assert states(kit) == [State.CANCELLED]


def test_a_cancel_that_the_provider_refuses_is_recorded_and_the_task_is_cancelled(kit: Kit) -> None:
    options["cancel"] = provider.cancel
    provider.cancel_errors = [ValueError("it is done already")]
    handle = draw.enqueue_sync()
    kit.drain_sync()
    handle.cancel_sync()
    kit.drain_sync()
    assert states(kit) == [State.CANCELLED]
    job = the_job(kit, handle.id)
    assert (job.state, job.error) == (JobState.CANCEL_FAILED, "ValueError: it is done already")


def test_a_cancel_that_does_not_reach_the_provider_is_tried_again(kit: Kit) -> None:
    options["cancel"] = provider.cancel
    provider.cancel_errors = [ConnectionError("reset")] * 2
    handle = draw.enqueue_sync()
    kit.drain_sync()
    handle.cancel_sync()
    kit.drain_sync()
    assert provider.cancelled == ["job_1"]


@BOTH
def test_a_task_whose_deadline_is_over_cancels_its_job_first(kit: Kit, function: Any) -> None:
    options["cancel"] = provider.cancel
    provider.needed = 10_000
    function.using(deadline="3h").enqueue_sync()
    kit.advance_sync("2h")
    assert provider.cancelled == []
    drained = kit.advance_sync("2h", raise_on_failure=False)
    assert [(run.outcome, run.reason) for run in drained.failures][-1] == ("dead", "deadline")
    assert states(kit) == [State.DEAD]
    assert provider.cancelled == ["job_1"]
    assert CANCELLING_LABEL not in kit.enqueued()[0].labels


def test_a_run_that_fails_before_it_comes_to_the_job_is_repeated(kit: Kit) -> None:
    options["cancel"] = provider.cancel
    handle = fails_before_the_job.enqueue_sync()
    kit.drain_sync()
    broken.append(True)
    handle.cancel_sync()
    kit.drain_sync(raise_on_failure=False)
    assert states(kit) == [State.CANCELLED]
    assert provider.cancelled == ["job_1"]


broken: list[bool] = []


@app.task
async def fails_before_the_job(ctx: Context) -> Any:
    if broken:
        broken.pop()
        raise ConnectionError("the database is away")
    return await ctx.remote("video", lambda: provider.submit(""), provider.poll, cancel=provider.cancel)


def test_jobs_side_by_side_are_each_cancelled(kit: Kit) -> None:
    async def cancel(job_id: str) -> None:
        await asyncio.sleep(1)
        provider.cancel(job_id)

    options.update(cancel=cancel, max_every="1m")
    handle = two_drawn.enqueue_sync()
    kit.drain_sync()
    handle.cancel_sync()
    kit.drain_sync()
    assert states(kit) == [State.CANCELLED]
    assert sorted(provider.cancelled) == ["job_1", "job_2"]


@app.task
async def two_drawn(ctx: Context) -> Any:
    async def one(key: str) -> Any:
        def submit() -> str:
            return provider.submit(key)

        job: Any = ctx.remote("video", submit, provider.poll, key=key, **options)
        return await job

    async def other() -> None:
        await ctx.sleep("1h", key="other")
        await ctx.step("never", lambda: provider.submit("never"))

    return await asyncio.gather(one("a"), other(), one("b"))


def test_jobs_side_by_side_have_their_own_ids(kit: Kit) -> None:
    handle = two_at_once.enqueue_sync()
    kit.advance_sync("1h")
    assert handle.result_sync(1) == ["result of job_1", "result of job_2"]
    assert provider.keys == ["cat", "dog"]


def test_a_later_run_gets_the_result_in_the_form_that_poll_declares(kit: Kit) -> None:
    handle = typed.enqueue_sync()
    kit.advance_sync("2h")
    assert handle.result_sync(1) == "https://example.com/job_1"


def test_a_plain_call_submits_and_polls_in_the_process() -> None:
    global provider
    provider = Provider()
    options.clear()
    options.update(every=0.01)
    assert draw_plainly(Context.detached()) == "result of job_1"
    assert asyncio.run(draw(Context.detached())) == "result of job_2"
    assert asyncio.run(batch_of_three()) == {"a": 1, "b": 2, "c": 3}


async def batch_of_three() -> dict[str, int]:
    left = [{"a": 1}, {"b": 2, "c": 3}]
    items = {"a": 1, "b": 2, "c": 3}
    return await Context.detached().remote_batch(
        "batch", items, lambda items: str(sorted(items)), lambda job_id: left.pop(0), every=0.01
    )


# --- batches ----------------------------------------------------------------------------------------------


def test_a_batch_returns_the_results_by_name(kit: Kit) -> None:
    provider.answers = [Pending(), {"item-1": 11, "item-0": 10, "unknown": 1}]
    handle = batch.enqueue_sync(2)
    kit.advance_sync("1h")
    assert handle.result_sync(1) == {"item-0": 10, "item-1": 11}
    assert submitted == [{"item-0": 0, "item-1": 1}]


def test_items_without_a_result_are_submitted_alone(kit: Kit) -> None:
    provider.answers = [{"item-0": 10}, {"item-2": 12}, {"item-1": 11}]
    handle = batch.enqueue_sync(3)
    kit.advance_sync("1h")
    assert handle.result_sync(1) == {"item-0": 10, "item-1": 11, "item-2": 12}
    assert [sorted(each) for each in submitted] == [
        ["item-0", "item-1", "item-2"],
        ["item-1", "item-2"],
        ["item-1"],
    ]
    assert len(set(provider.keys)) == 3


def test_items_that_a_poll_hands_over_are_kept(kit: Kit) -> None:
    provider.answers = [Pending(items={"item-0": 10}), {"item-0": -1}, {"item-1": 11}]
    handle = batch.enqueue_sync(2)
    kit.advance_sync("1h")
    assert handle.result_sync(1) == {"item-0": 10, "item-1": 11}
    assert submitted == [{"item-0": 0, "item-1": 1}, {"item-1": 1}]
    assert the_job(kit, handle.id).items == 2


def test_after_too_many_jobs_the_task_fails_and_a_redrive_goes_on_with_what_is_left(kit: Kit) -> None:
    options["max_submits"] = 2
    provider.answers = [{"item-0": 10}, {}, {"item-1": 11}]
    handle = batch.enqueue_sync(2)
    [failure] = kit.advance_sync("1h", raise_on_failure=False).failures
    assert isinstance(failure.error, ProviderJobFailedError)
    assert "1 of 2 items without a result after job job_2, for example item-1" in str(failure.error)
    app.admin.dead_letters.redrive_sync([handle.id])
    kit.advance_sync("1h")
    assert handle.result_sync(1) == {"item-0": 10, "item-1": 11}
    assert submitted[-1] == {"item-1": 1}


def test_a_large_batch_is_read_back_whole(kit: Kit) -> None:
    names = [f"item-{number}" for number in range(1_000)]
    provider.answers = [dict.fromkeys(names[:700], 1), dict.fromkeys(names[700:], 2)]
    handle = batch.enqueue_sync(1_000)
    kit.advance_sync("1h")
    assert list(handle.result_sync(1).items()) == [(name, 1) for name in names[:700]] + [
        (name, 2) for name in names[700:]
    ]
    assert len(submitted[1]) == 300


def test_an_empty_batch_submits_nothing(kit: Kit) -> None:
    handle = batch.enqueue_sync(0)
    kit.drain_sync()
    assert handle.result_sync(1) == {}
    assert submitted == []


# --- wrong use --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"every": 0}, "every"),
        ({"every": "soon"}, "every"),
        ({"every": "1h", "max_every": "1m"}, "max_every"),
        ({"timeout": -1}, "timeout"),
        ({"in_doubt": "guess"}, "in_doubt"),
        ({"max_poll_failures": 0}, "max_poll_failures"),
        ({"find": "openai"}, "find"),
        ({"cancel": 3}, "cancel"),
        ({"key": ""}, "key"),
        ({"provider": 1}, "provider"),
    ],
)
@BOTH
def test_an_invalid_option_is_refused_before_anything_is_submitted(
    kit: Kit, function: Any, wrong: dict[str, Any], message: str
) -> None:
    options.update(wrong)
    function.enqueue_sync()
    [failure] = kit.drain_sync(raise_on_failure=False).failures
    assert isinstance(failure.error, OptionError)
    assert message in str(failure.error)
    assert provider.keys == []


@pytest.mark.parametrize("items", [["a"], {1: "a"}, {"": "a"}])
def test_items_without_names_are_refused(items: Any) -> None:
    with pytest.raises(OptionError, match="items"):
        asyncio.run(Context.detached().remote_batch("batch", items, str, lambda job_id: {}))


def test_a_submit_that_returns_no_id_is_refused(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "submit", lambda key: {"id": 7})
    draw.enqueue_sync()
    [failure] = kit.drain_sync(raise_on_failure=False).failures
    assert isinstance(failure.error, ArgumentsError)
    assert "submit" in str(failure.error)


def test_a_job_inside_a_step_is_refused(kit: Kit) -> None:
    inside_a_step.enqueue_sync()
    [failure] = kit.drain_sync(raise_on_failure=False).failures
    assert isinstance(failure.error, UsageError)


@pytest.mark.parametrize("wrong", [{"after": "soon"}, {"done": "half"}, {"note": 3}])
def test_an_invalid_pending_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Pending(**wrong)
