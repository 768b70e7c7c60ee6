"""Ends streams and waiting requests when the server stops, with any ASGI server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

POLL_SECONDS = 0.2
"""How often the server is checked while a request waits."""


class ShutdownSignal:
    """Detects that the server is stopping.

    The lifespan protocol does not help: a server sends `lifespan.shutdown` after its last request has ended,
    and a stream is a request that does not end. uvicorn sets its `should_exit`; hypercorn cancels requests.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._job: asyncio.Task[None] | None = None

    def reset(self) -> None:
        """Clear the signal, because the application is started again."""
        self._is_set = False

    def trigger(self) -> None:
        """Wake all code that waits for the signal."""
        self._is_set = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Return when the server stops."""
        if self._is_set:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        if self._job is None or self._job.done():
            self._job = asyncio.create_task(self._watch(), name="tidegate server watch")
        try:
            await future
        finally:
            self._waiting.discard(future)

    async def _watch(self) -> None:
        while self._waiting and not self._is_set:
            if server_is_stopping():
                self.trigger()
            await asyncio.sleep(POLL_SECONDS)


def server_is_stopping() -> bool:
    """Return whether a uvicorn server in this process is stopping.

    Its signal handlers are methods of the server, so this finds the server no matter how it was started.
    """
    servers = (getattr(signal.getsignal(each), "__self__", None) for each in (signal.SIGTERM, signal.SIGINT))
    return any(getattr(server, "should_exit", False) is True for server in servers)


async def first_completed(name: str, *work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run coroutines until the first one is done, cancel the others, and return the task of the first.

    Args:
        name: Name of the asyncio tasks.
        work: The coroutines. If several are done at the same time, the first one in this order counts.
    """
    jobs = [asyncio.create_task(coroutine, name=name) for coroutine in work]
    try:
        done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        return next(job for job in jobs if job in done)
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
