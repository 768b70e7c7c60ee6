"""Task functions that run in child processes: what they return, and what they change in their process."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from tidegate import Tidegate

app = Tidegate()
seen: ContextVar[str] = ContextVar("seen", default="nothing")
ran: list[str] = []


def sync_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    """As many a decorator is written: it hides that what it wraps is a coroutine function."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


async def _work() -> str:
    await asyncio.sleep(0)
    return "done"


@sync_wrapper
async def wrapped() -> str:
    return await _work()


def coroutine() -> Any:
    return _work()


async def coroutine_of_coroutine() -> Any:
    return _work()


def pool_future() -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: "done")


def _numbers() -> Iterator[int]:
    ran.append("a refused one")
    yield 1


def generator() -> Any:
    return _numbers()


async def _stream() -> AsyncIterator[int]:
    ran.append("a refused one")
    yield 1


def async_generator() -> Any:
    return _stream()


def other_loop() -> Any:
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    return future


class Endless:
    """Awaiting it gives itself, for ever."""

    def __await__(self) -> Iterator[Any]:
        return self
        yield


def endless() -> Any:
    return Endless()


def handle() -> Any:
    return app.handle("00000000-0000-7000-8000-000000000001")


def remember() -> str:
    """Return what an earlier run left in the context, and leave something there."""
    before = seen.get()
    seen.set("an earlier run")
    return before


AWAITED = [wrapped, coroutine, coroutine_of_coroutine, pool_future]
REFUSED = [generator, async_generator, other_loop, endless, handle]
for each in (*AWAITED, *REFUSED, remember):  # type: ignore[operator]
    app.task(name=each.__name__, runs_in="process", max_attempts=1)(each)
