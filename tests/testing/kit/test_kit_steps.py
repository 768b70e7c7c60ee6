"""Steps in the test kit: recorded over retries and decisions, and not recorded in a plain call."""

from __future__ import annotations

import asyncio
from typing import Literal

from tidegate import Context, Fixed, State, Tidegate
from tidegate.testing import Kit

app = Tidegate()
calls: list[str] = []


async def draw(prompt: str) -> str:
    calls.append(prompt)
    if prompt == "b" and calls.count("b") == 1:
        raise TimeoutError
    return prompt.upper()


@app.task(backoff=Fixed(10))
async def draw_all(ctx: Context, in_doubt: Literal["repeat", "ask"] = "repeat") -> list[str]:
    return [await ctx.step("draw", draw, prompt, in_doubt=in_doubt) for prompt in "ab"]


def test_a_retry_does_the_recorded_steps_once() -> None:
    calls.clear()
    with Kit(app) as kit:
        handle = draw_all.enqueue_sync()
        assert kit.drain_sync().retrying == 1
        kit.advance_sync(minutes=1)
        assert handle.result_sync(1) == ["A", "B"]
        assert calls == ["a", "b", "b"]
        steps = app.admin.tasks.steps_sync(handle.id)
        assert [(step.state, step.run) for step in steps] == [("done", 1), ("done", 2)]


def test_a_task_in_doubt_goes_on_after_the_decision() -> None:
    calls.clear()
    with Kit(app) as kit:
        handle = draw_all.enqueue_sync("ask")
        kit.advance_sync(minutes=1)
        assert handle.status_sync().state is State.DEAD
        (doubt,) = app.admin.doubts.list_sync()
        assert app.admin.doubts.accept_sync(doubt.id, result="theirs").resumed == [handle.id]
        kit.drain_sync()
        assert handle.result_sync(1) == ["A", "theirs"]
        assert calls == ["a", "b"]


def test_a_plain_call_does_its_steps_and_records_nothing() -> None:
    calls[:] = ["b"]

    async def plain() -> list[str]:
        return await draw_all()

    with Kit(app):
        assert asyncio.run(plain()) == ["A", "B"]
        assert app.admin.tasks.list_sync() == []
