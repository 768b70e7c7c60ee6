"""The usage of a task's calls, from the provider's responses to the task's row, for each place where it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import httpx2
import openai
import pytest

from support import all_final, load_app, worker_process
from tidegate import Context, RetryAfter, State, Tidegate
from tidegate.calls.permits import PermitRequest
from tidegate.calls.settings import CallTimes
from tidegate.domain.calls import CallResult
from tidegate.domain.usage import Usage, UsageTotals
from tidegate.testing.provider import SimulatedProvider

pytestmark = pytest.mark.anyio
QUICK = CallTimes(seconds=5)
ASKED = [{"role": "user", "content": "The tide came in at dawn. It left at noon!"}]


def a_client(provider, upstream):
    http = httpx2.AsyncClient(transport=upstream.transport())
    return openai.AsyncOpenAI(base_url=provider.url, api_key="k", http_client=http)


async def chat(client):
    return await client.chat.completions.create(model="m", messages=ASKED)


async def stream(client):
    """Read an answer in pieces; return the usage that the last one states."""
    pieces = await client.chat.completions.create(
        model="m", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    return [piece.usage async for piece in pieces if piece.usage][-1]


async def test_usage_of_whole_and_streamed_responses_adds_up_over_all_runs(app: Tidegate):
    own, other = app.upstream("own", times=QUICK), app.upstream("other", times=QUICK)
    stated = []
    async with (
        SimulatedProvider() as provider,
        a_client(provider, own) as mine,
        a_client(provider, other) as its,
    ):

        @app.task(name="t", upstream=own)
        async def summarise(ctx: Context) -> None:
            stated.append((await chat(mine)).usage)
            if ctx.run == 1:
                raise RetryAfter(0.01)
            stated.append(await stream(mine))
            stated.append((await chat(its)).usage)

        async with app.worker():
            handle = await summarise.enqueue()
            await handle.result(20)
        row = await handle.status()
    assert len(stated) == 4
    assert row.usage == UsageTotals(
        calls=4,
        input_tokens=sum(usage.prompt_tokens for usage in stated),
        output_tokens=sum(usage.completion_tokens for usage in stated),
    )
    assert min(row.usage.input_tokens, row.usage.output_tokens) > 0


async def test_a_manual_call_counts_with_the_usage_that_the_task_reports(app: Tidegate):
    upstream = app.upstream("bedrock")

    @app.task(name="t", upstream=upstream)
    async def converse() -> None:
        async with upstream.call() as call:
            call.used({"usage": {"inputTokens": 5, "cacheReadInputTokens": 20, "outputTokens": 3}})
        async with upstream.call():
            pass  # states nothing

    async with app.worker():
        handle = await converse.enqueue()
        await handle.result(20)
    assert (await handle.status()).usage == UsageTotals(1, 25, 20, 0, 3, 0)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Closes what a test opens, after the test."""
    with contextlib.ExitStack() as opened:
        yield opened


async def test_a_plain_function_in_a_thread_counts_too(app: Tidegate, stack: contextlib.ExitStack):
    upstream = app.upstream("openai", times=QUICK)
    async with SimulatedProvider() as provider:
        http = httpx2.Client(transport=upstream.transport())
        client = stack.enter_context(openai.OpenAI(base_url=provider.url, api_key="k", http_client=http))

        @app.task(name="t", upstream=upstream, runs_in="thread")
        def summarise() -> int:
            return client.chat.completions.create(model="m", messages=ASKED).usage.prompt_tokens

        async with app.worker():
            handle = await summarise.enqueue()
            tokens = await handle.result(20)
    usage = (await handle.status()).usage
    assert usage is not None
    assert (usage.calls, usage.input_tokens) == (1, tokens)


@pytest.mark.parametrize("end", ["cancel", "deadline", "failure"])
async def test_a_run_that_is_stopped_or_fails_counts_what_it_had_used(app: Tidegate, end: str):
    upstream, used = app.upstream("u"), asyncio.Event()

    @app.task(name="t", upstream=upstream, max_attempts=1, deadline=0.5 if end == "deadline" else 60)
    async def uses() -> None:
        async with upstream.call() as call:
            call.used(Usage(input_tokens=9, output_tokens=1))
        used.set()
        if end == "failure":
            raise ValueError
        await asyncio.sleep(60)

    async with app.worker():
        handle = await uses.enqueue()
        await used.wait()
        if end == "cancel":
            await handle.cancel()
        rows = await all_final(app, [handle.id])
    assert rows[handle.id].state is (State.CANCELLED if end == "cancel" else State.DEAD)
    assert rows[handle.id].usage == UsageTotals(calls=1, input_tokens=9, output_tokens=1)


async def test_a_call_outside_tasks_counts_for_no_task(app: Tidegate):
    upstream = app.upstream("u")
    permit = await upstream.permits.acquire(PermitRequest())
    await permit.settle(CallResult(usage=Usage(input_tokens=1)))

    @app.task(name="t", upstream=upstream)
    async def idle() -> None: ...

    async with app.worker():
        handle = await idle.enqueue()
        await handle.result(20)
    assert (await handle.status()).usage is None


async def test_calls_made_in_a_child_process_count(tmp_path, monkeypatch):
    calling = load_app("calling", tmp_path, monkeypatch)
    async with SimulatedProvider() as provider:
        with worker_process("calling:app", tmp_path, PROVIDER_URL=provider.url):
            handle = await calling.chain.enqueue(1, 3)
            await handle.result(40)
    usage = (await handle.status()).usage
    assert usage.calls == 3
    assert min(usage.input_tokens, usage.output_tokens) >= 3
    await calling.app.aclose()
