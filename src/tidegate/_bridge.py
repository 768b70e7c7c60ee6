"""The one bridge for sync callers: a loop in a daemon thread, shared by the whole process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidegate.errors import UsageError

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from sync code and return its result.

    Raises:
        UsageError: Called inside a running event loop, where it would block everything.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        waiting = asyncio.run_coroutine_threadsafe(work, _bridge_loop())
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()  # interrupted, by Ctrl-C for one: what nobody waits for must not go on
            raise
    work.close()
    raise UsageError("a …_sync method was called inside an event loop", fix="await the method without _sync")


def begin(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on the bridge's loop without waiting for it."""
    asyncio.run_coroutine_threadsafe(work, _bridge_loop())


def loop_at_hand() -> asyncio.AbstractEventLoop:
    """Return the running loop; the bridge's where none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return _bridge_loop()


def _bridge_loop() -> asyncio.AbstractEventLoop:
    """Return the bridge's loop; a forked child gets its own."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="tidegate-bridge", daemon=True).start()
        return _loop


def _begin_anew() -> None:
    """Forget in a forked child what the parent's threads hold and run."""
    global _loop, _lock
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_begin_anew)
