"""The application that the tests of the kit use: as a user's own, with a database that must never be opened."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

from tidegate import Context, Tidegate

NOWHERE = "/dev/null/never-opened.db"
app = Tidegate(f"sqlite:///{NOWHERE}")


class Refused(Exception):
    """What `refuse` raises."""


@app.task(queue="mail")
async def greet(name: str, *, loud: bool = False) -> str:
    return f"HELLO {name}" if loud else f"hello {name}"


@app.task
def double(number: int) -> int:
    return 2 * number


@app.task(max_attempts=3, backoff=timedelta(minutes=10))
async def refuse(why: str) -> None:
    raise Refused(why)


@app.task(timeout="1h")
async def sleep(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@app.task(timeout="2m", max_attempts=1)
async def hang() -> None:
    await asyncio.Event().wait()


@app.task
def chain(left: int) -> int:
    if left > 0:
        chain.enqueue_sync(left - 1)
    return left


@app.task
async def ask_child(number: int) -> int:
    return await (await double.enqueue(number)).result() + 1


@app.task
def ask_child_sync(number: int) -> int:
    return double.enqueue_sync(number).result_sync(timeout="1h") + 1


@app.task
async def for_ever() -> None:
    while True:
        await asyncio.sleep(0)


@app.task
def block(seconds: float) -> None:
    threading.Event().wait(seconds)


@app.task(timeout="1h")
def sleep_sync(seconds: float) -> None:
    time.sleep(seconds)


@app.task
async def block_loop(seconds: float) -> None:
    time.sleep(seconds)


@app.task(rate_limit="2/min")
async def limited(number: int) -> int:
    return number


@app.task
async def report(ctx: Context, pages: int) -> int:
    for page in range(pages):
        ctx.progress(page + 1, pages, f"page {page + 1}")
        await ctx.emit({"page": page + 1})
    return pages


async def checkout(name: str) -> str:
    """Stand for the code under test."""
    return (await greet.using(tenant="acme", key=f"greet-{name}").enqueue(name)).id
