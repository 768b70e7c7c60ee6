"""Work whose time grows with what a client sent, done off the event loop where it is long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SMALL_BYTES = 8_192
"""Up to here the loop does it itself, in less than about 2 ms: a thread would cost more."""


class Offload:
    """One thread for long computations, so that the event loop answers other requests meanwhile.

    A single one: it shares the interpreter lock with the loop, and several would leave the loop less of it.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns, or raise what it raises.

        Args:
            size: Bytes it works on; decides where it is done.
            work: Touches no event loop.
            args: Given to it.
            kwargs: Given to it.
        """
        if size <= SMALL_BYTES:
            return work(*args, **kwargs)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate web")
        return await asyncio.wrap_future(self._thread.submit(work, *args, **kwargs))

    def close(self) -> None:
        """Let the thread end after what it does now; a later `run` starts another one."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
