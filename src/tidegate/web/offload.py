"""Runs work that depends on the size of a request, in a thread if it takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SMALL_BYTES = 8_192
"""Up to this size the work runs on the event loop: it takes less than about 2 ms, and a thread would cost
more."""


class Offload:
    """One thread for long computations, so that the event loop can serve other requests.

    There is only one thread: each further one would compete with the event loop for the interpreter lock.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns, or raise what it raises.

        Args:
            size: Bytes that `work` processes. The size decides where it runs.
            work: A function that does not use the event loop.
            args: The positional arguments of `work`.
            kwargs: The keyword arguments of `work`.
        """
        if size <= SMALL_BYTES:
            return work(*args, **kwargs)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate web")
        return await asyncio.wrap_future(self._thread.submit(work, *args, **kwargs))

    def close(self) -> None:
        """End the thread after its present work. A later `run` starts a new thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
