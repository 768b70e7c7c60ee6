"""What a type checker must know of the public API. Checked by mypy in `tests/test_types.py`; never run."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import httpx
import httpx2
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tidegate import (
    NO_LIMIT,
    ActionStatus,
    Admin,
    CallTimes,
    CancelStatus,
    Chunk,
    Context,
    DeadLetter,
    DeadLetterReport,
    EmbeddedWorker,
    Exponential,
    Fixed,
    Handle,
    LastFailure,
    ManualCall,
    Operation,
    OptionError,
    PauseStatus,
    Pending,
    Polynomial,
    Pool,
    PreparedTask,
    Progress,
    QueueStatus,
    RedrivenLetter,
    RetryAfter,
    RunFinished,
    ScheduleStatus,
    SchemaError,
    StoreUnavailableError,
    TaskNotFoundError,
    TaskStatus,
    TickStatus,
    Tidegate,
    Timings,
    Upstream,
    UpstreamParkedError,
    UpstreamStatus,
    UpstreamTransport,
    WaitExplanation,
    WorkerStatus,
    WrongStateError,
    on,
)
from tidegate.testing import Drained, EnqueuedTask, Kit, KitTestCase, ScriptedUpstream

app = Tidegate()


@app.task
async def bare(number: int, *, twice: bool = False) -> str:
    return str(number)


@app.task(queue="q", retry=[on(ValueError, wait=1)])
async def with_settings(number: int) -> list[int]:
    return [number]


@app.task
def plain(number: int) -> bytes:
    return b""


@app.schedule("0 7 * * 1-5", timezone="Europe/Berlin", catch_up="one", overlap="skip", args=(1,))
@app.schedule("every 30s", name="often", args={"number": 2}, not_later_than=timedelta(minutes=5), queue="q")
@app.task
async def scheduled(number: int) -> str:
    return str(number)


async def schedules(ctx: Context) -> None:
    handle = await scheduled.enqueue(1)
    assert_type(handle, Handle[str])
    assert_type(await scheduled(1), str)
    assert_type(ctx.scheduled_for, datetime | None)
    assert_type(ctx.schedule, str)
    assert_type(await app.admin.schedules.list(), list[ScheduleStatus])
    added = await app.admin.schedules.add(plain, "@daily", name="x", args=(3,))
    assert_type(added.last_tick, TickStatus | None)
    assert_type(await app.admin.schedules.edit("x", "@hourly", overlap="allow"), ScheduleStatus)
    assert_type((await app.admin.schedules.preview("x"))[0].local, datetime)
    assert_type(app.admin.schedules.run_sync("x"), str)


@app.task(timeout=5)
async def with_context(ctx: Context, name: str) -> float:
    assert_type(ctx.last_failure, LastFailure | None)
    return ctx.remaining()


@app.task(
    timeout="15m",
    total_timeout="2h",
    deadline="1h",
    backoff="30s",
    memory_limit="2GiB",
    runs_in="process",
    retry=[ValueError, "timeout", on(KeyError, wait="5s")],
)
def with_text(number: int) -> int:
    return number


openai = app.upstream("openai", times=CallTimes(seconds="2m"), requests_per_minute=5, slow_start="1m")
pool = Pool(queues=["llm"], memory_limit="2GiB", poll_interval="1s", shares={"bulk": 0.2})
timings = Timings(lease="1m", drain_grace=timedelta(minutes=2))
backoffs = [Fixed("5s"), Exponential(base="2s", cap="1m", jitter="full"), Polynomial(plus="2s")]


@app.task(timeout=NO_LIMIT, total_timeout=NO_LIMIT, upstream=openai)
def replaced(ctx: Context) -> None:
    ctx.replace_process("it leaks")


# --- an upstream's transport fits the clients of both libraries ---
httpx2.AsyncClient(transport=openai.transport())
httpx2.Client(transport=openai.transport())
httpx.AsyncClient(transport=openai.transport(httpx.AsyncHTTPTransport()))
httpx.Client(transport=openai.transport(httpx.HTTPTransport()))
AsyncOpenAI(http_client=httpx2.AsyncClient(transport=openai.transport()))
AsyncAnthropic(http_client=httpx2.AsyncClient(transport=openai.transport()))


async def use() -> None:
    async with app.worker(pools=[pool], timings=timings):
        pass
    assert_type(with_text.using(total_timeout="2h", deadline=datetime.now(UTC)).enqueue_sync(1), Handle[int])
    with_text.using(total_timeout=NO_LIMIT, deadline=timedelta(minutes=5))
    with_text.using(total_timeout=datetime.now(UTC))  # type: ignore[arg-type]
    assert_type(pool.memory_limit, int | None)
    assert_type(timings.lease, float)
    assert_type(await with_text.using(delay="5m", deadline="1h", key_kept="7d").enqueue(1), Handle[int])
    assert_type(await bare.enqueue(1, twice=True), Handle[str])
    assert_type(await (await bare.enqueue(1)).result(), str)
    assert_type(await with_settings.using(delay=5, priority="bulk").enqueue(1), Handle[list[int]])
    assert_type(await (await with_context.enqueue("name")).result(1), float)
    assert_type(plain.enqueue_sync(1).result_sync(timeout=1), bytes)
    assert_type(bare(1), Awaitable[str])
    assert_type(plain(1), bytes)
    assert_type(await (await bare.enqueue(1)).status(), TaskStatus)
    status = await app.status("id")
    assert_type(status.enqueued_at, datetime)
    assert_type(status.progress, Progress | None)
    assert_type([entry.happened_at for entry in await app.history("id")], list[datetime])
    assert_type(await app.cancel("id"), CancelStatus)
    assert_type(await app.enqueue_many([bare.prepare(1)], conn=object()), list[str])
    assert_type(app.enqueue_many_sync([bare.prepare(1)], conn=object()), list[str])
    assert_type(bare.prepare(1), PreparedTask)
    assert_type(await bare.enqueue_many([(1,), {"number": 2}, bare.prepare(3)]), list[Handle[str]])
    assert_type(plain.using(queue="q").enqueue_many_sync([(1,)]), list[Handle[bytes]])
    assert_type(bare.handle("id"), Handle[str])
    assert_type(bare.handle("id").result_sync(timedelta(seconds=5)), str)
    assert_type(await app.result("id", "30s"), Any)
    for chunk in plain.handle("id").stream_sync(after=3):
        assert_type(chunk, Chunk)
    bare.handle("id").result_sync()  # type: ignore[call-arg]
    bare.handle("id").result_sync(None)  # type: ignore[arg-type]
    app.result_sync("id")  # type: ignore[call-arg]
    await bare.enqueue_many([7])  # type: ignore[list-item]
    await bare.enqueue("one")  # type: ignore[arg-type]
    await bare.enqueue(1, thrice=True)  # type: ignore[call-arg]
    await with_context.enqueue(1)  # type: ignore[arg-type]
    await with_context.enqueue()  # type: ignore[call-arg]


def wait_in_any_form(ctx: Context) -> None:
    if ctx.attempt > 1:
        raise RetryAfter(timedelta(minutes=1)) from RetryAfter("30s")
    ctx.retry("5m", "not ready")


async def use_upstream_by_hand() -> None:
    assert_type(openai, Upstream)
    assert_type(openai.transport(), UpstreamTransport)
    async with openai.call(model="m") as call:
        assert_type(call, ManualCall)
    worker: EmbeddedWorker = app.worker()
    assert_type(worker.ids, tuple[str, ...])


async def administer() -> None:
    admin = app.admin
    assert_type(admin, Admin)
    assert_type(await admin.tasks.list(state=["ready", "running"], queue="llm"), list[TaskStatus])
    assert_type(await admin.tasks.explain("id"), WaitExplanation)
    assert_type(await admin.tasks.cancel(["id"], why="no need"), dict[str, CancelStatus])
    assert_type(admin.tasks.retry_sync("id"), dict[str, ActionStatus])
    assert_type(await admin.queues.list(), list[QueueStatus])
    assert_type(await admin.queues.pause("llm", why="bad prompt"), bool)
    assert_type(admin.queues.drain_sync("llm", timeout="1m"), QueueStatus)
    assert_type(await admin.functions.paused(), list[PauseStatus])
    assert_type(await admin.workers.list(), list[WorkerStatus])
    assert_type(await admin.upstreams.list(), list[UpstreamStatus])
    await admin.upstreams.park("openai", "10m", why="invoice")
    await admin.upstreams.set_limits("openai", requests_per_minute=5, slow_start="1m")
    assert_type(await admin.dead_letters.list(reason="quota", before="7d"), list[DeadLetter])
    assert_type(await admin.dead_letters.get("id"), DeadLetter)
    assert_type(admin.dead_letters.count_sync(), int)
    assert_type(await admin.dead_letters.redrive(everything=True, dry_run=True), DeadLetterReport)
    assert_type(await admin.operations.list(), list[Operation])
    assert_type(admin.operations.get_sync("id"), Operation)
    assert_type(await admin.operations.letters("id", state="died"), list[RedrivenLetter])
    assert_type(await admin.operations.abort("id"), Operation)
    assert_type(await admin.operations.undo("id"), Operation)
    await admin.tasks.list(colour="red")  # type: ignore[call-arg]
    await admin.upstreams.set_limits("openai", requests_per_minute="many")  # type: ignore[arg-type]
    await admin.dead_letters.get(7)  # type: ignore[arg-type]


async def check_with_the_kit() -> None:
    async with Kit(app, mode="inline", raise_on_failure=True) as kit:
        assert_type(kit, Kit)
        assert_type(await kit.drain(queue="q", limit="30s"), Drained)
        assert_type(await kit.advance(timedelta(hours=2)), Drained)
        assert_type(kit.advance_sync(hours=2).failed, int)
        assert_type(kit.drain_sync().failures[0].error, BaseException | None)
        assert_type(kit.assert_enqueued(bare, args=(1,), count=2), list[EnqueuedTask])
        assert_type(
            kit.enqueued(plain, args={"number": 1}, state="dead", priority="bulk"), list[EnqueuedTask]
        )
        script = kit.upstream("openai").rate_limits(retry_after="1m").replies("text", times=None)
        assert_type(script, ScriptedUpstream)
        AsyncOpenAI(http_client=httpx2.AsyncClient(transport=script.transport()))
        httpx.Client(transport=script.transport(httpx))
        kit.drain().succeeded  # type: ignore[attr-defined]
        kit.enqueued(plain.function)  # type: ignore[arg-type]
    Kit(app, mode="eager")  # type: ignore[arg-type]


class CheckTest(KitTestCase):
    tidegate_app = app

    def test_it(self) -> None:
        assert_type(self.kit, Kit)


async def read_errors() -> None:
    try:
        await use()
    except OptionError as error:
        assert_type(error.option, str)
        assert_type(error.value, object)
    except TaskNotFoundError as error:
        assert_type(error.task_id, str)
    except WrongStateError as error:
        assert_type(error.state, str)
    except SchemaError as error:
        assert_type(error.place, str)
        assert_type(error.generation, str)
        assert_type(error.database_version, int | None)
    except StoreUnavailableError as error:
        assert_type(error.may_pass, bool)
    except UpstreamParkedError as error:
        assert_type(error.wait_seconds, float | None)
        error.reset_at  # type: ignore[attr-defined]


@app.on_event(RunFinished)
def subscribed(event: RunFinished) -> None:
    assert_type(event.seconds, float)
    assert_type(event.task_id, str)


@app.on_event(RunFinished)  # type: ignore[arg-type]
def subscribed_to_another_type(event: str) -> None: ...


async def start_video(prompt: str, seconds: int) -> str:
    return f"video of {prompt}, {seconds} s"


def start_video_plainly(prompt: str) -> str:
    return prompt


async def poll_video(job_id: str) -> Pending | bytes:
    return Pending(after="5s", done=1, total=2)


def poll_video_plainly(job_id: str) -> Pending | bytes:
    return job_id.encode()


async def start_batch(items: dict[str, int]) -> str:
    return str(len(items))


async def poll_batch(job_id: str) -> Pending | dict[str, float]:
    return {job_id: 0.5}


async def find_job(key: str) -> str | None:
    return key or None


async def cancel_job(job_id: str) -> None: ...


@app.task
async def provider_jobs(ctx: Context) -> None:
    video = await ctx.remote(
        "video", start_video, poll_video, "cat", 5, find=find_job, cancel=cancel_job, every=5, timeout="1h"
    )
    assert_type(video, bytes)
    plain = await ctx.remote("video", start_video_plainly, poll_video_plainly, "cat", in_doubt="ask")
    assert_type(plain, bytes)
    mixed = await ctx.remote("video", lambda: "job", poll_video, key="a", provider="openai")
    assert_type(mixed, bytes)
    batch = await ctx.remote_batch(
        "batch", {"a": 1}, start_batch, poll_batch, cancel=cancel_job, max_submits=2
    )
    assert_type(batch, dict[str, float])
    await ctx.remote("video", start_video, poll_video, "cat")  # type: ignore[arg-type]
    await ctx.remote("video", start_video_plainly, poll_video, "cat", in_doubt="guess")  # type: ignore[call-overload]


@app.task
def provider_jobs_plainly(ctx: Context) -> None:
    assert_type(ctx.remote_sync("video", start_video_plainly, poll_video_plainly, "cat"), bytes)

    def submit(items: dict[str, int]) -> str:
        return str(items)

    def poll(job_id: str) -> Pending | dict[str, int]:
        return {job_id: 1}

    assert_type(ctx.remote_batch_sync("batch", {"a": 1}, submit, poll), dict[str, int])
