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
_pid = 0


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from sync code and return its result.

    Raises:
        UsageError: Called inside a running event loop, where it would block everything.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(work, _bridge_loop()).result()
    work.close()
    raise UsageError("a …_sync method was called inside an event loop", fix="await the method without _sync")


def _bridge_loop() -> asyncio.AbstractEventLoop:
    """Return the bridge's loop; a forked child gets its own."""
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="tidegate-bridge", daemon=True).start()
        return _loop
