"""Task functions that run in child processes: what they return, and what they change in their process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tidegate import Tidegate

app = Tidegate()
seen: ContextVar[str] = ContextVar("seen", default="nothing")
ran: list[str] = []


def sync_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap like a typical decorator, which hides that the wrapped function is a coroutine function."""

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
    """An awaitable that returns itself."""

    def __await__(self) -> Iterator[Any]:
        return self
        yield


def endless() -> Any:
    return Endless()


def handle() -> Any:
    return app.handle("00000000-0000-7000-8000-000000000001")


def remember() -> str:
    """Return the value that an earlier run left in the context, and set a new one."""
    before = seen.get()
    seen.set("an earlier run")
    return before


def disturb(where: str) -> str:
    """Change all of the process state, and remove the working directory."""
    os.chdir(where)
    Path(where).rmdir()
    os.umask(0o077)
    os.environ["LEFT_BEHIND"] = "yes"
    os.environ.pop("PATH", None)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    return surroundings()


def surroundings() -> str:
    """Return the process state in one line."""
    umask = os.umask(0o022)
    os.umask(umask)
    with contextlib.suppress(OSError):
        return repr((
            os.getcwd(), umask, os.environ.get("LEFT_BEHIND"), "PATH" in os.environ, signal.getsignal(signal.SIGALRM),
            signal.getitimer(signal.ITIMER_REAL)[0], signal.pthread_sigmask(signal.SIG_BLOCK, ()),
            resource.getrlimit(resource.RLIMIT_CORE),
        ))  # fmt: skip
    return "a directory that is gone"


def lower_a_limit_for_good() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard - 1))


AWAITED = [wrapped, coroutine, coroutine_of_coroutine, pool_future]
REFUSED = [generator, async_generator, other_loop, endless, handle]
for each in (*AWAITED, *REFUSED, remember, disturb, surroundings, lower_a_limit_for_good):  # type: ignore[operator]
    app.task(name=each.__name__, runs_in="process", max_attempts=1)(each)
