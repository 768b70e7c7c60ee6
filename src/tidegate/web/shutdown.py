"""Streams and waits end when the server stops, however the API is served."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

POLL_SECONDS = 0.2
"""Between two looks at the server while somebody waits."""


class ShutdownSignal:
    """Knows that the server is to stop.

    The lifespan protocol is no help: a server sends `lifespan.shutdown` after its last request has ended, and
    a stream is a request that does not end. uvicorn says it by its `should_exit`; hypercorn cancels requests.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._job: asyncio.Task[None] | None = None

    def reset(self) -> None:
        """Forget an earlier stop: the application is started again."""
        self._is_set = False

    def trigger(self) -> None:
        """End what waits, at once."""
        self._is_set = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Return once the server is to stop."""
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
    """Return whether a uvicorn server that serves this process was told to stop.

    Its signal handlers are methods of the server, so it is found whoever started it.
    """
    servers = (getattr(signal.getsignal(each), "__self__", None) for each in (signal.SIGTERM, signal.SIGINT))
    return any(getattr(server, "should_exit", False) is True for server in servers)


async def first_completed(name: str, *work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Do several things until one is over, and leave the others; return the first one that is over.

    Args:
        name: Of the tasks that do it.
        work: What to do; of several that end together the first given counts.
    """
    jobs = [asyncio.create_task(one, name=name) for one in work]
    try:
        over, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        return next(job for job in jobs if job in over)
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
