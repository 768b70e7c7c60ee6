"""Daemon threads for blocking calls: a call that never returns must not keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]", contextvars.Context]


class DaemonThreadPool:
    """Runs functions in threads. Starts a thread when none is idle, and reuses it afterwards.

    Args:
        name: Prefix of the threads' names.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = 0
        self._started = 0
        self._lock = threading.Lock()
        self.awaited = 0
        """Calls that somebody still waits for."""

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a function in a thread and return a future with its result or exception.

        A BaseException is passed on too. Cancelling the future does not stop the function: Python cannot stop
        threads.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(self._ended)
        with self._lock:
            self.awaited += 1
            if self._idle > 0:
                self._idle -= 1
            else:
                self._started += 1
                threading.Thread(
                    target=self._serve, name=f"{self._name}-{self._started}", daemon=True
                ).start()
        self._jobs.put((function, loop, future, contextvars.copy_context()))
        return future

    def close(self) -> None:
        """End idle threads. Busy threads end after their current function."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _ended(self, _: asyncio.Future[Any]) -> None:
        with self._lock:
            self.awaited -= 1

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, loop, future, context = job
            try:
                value, error = context.run(function), None
            except BaseException as raised:  # a function may raise anything; its run must receive it
                value, error = None, raised
            with self._lock:
                self._idle += 1
            try:
                loop.call_soon_threadsafe(_resolve, future, value, error)
            except RuntimeError:
                return  # the loop is closed, so nobody waits for the result
            del job, function, future, value, error


def _resolve(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(FunctionRaised(error))


class FunctionRaised(Exception):  # noqa: N818 - a wrapper: futures refuse StopIteration and re-raise SystemExit
    """Wraps what a function raised in its thread, in `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
