"""Makes `time.sleep` in a plain task function wait on the clock of the drain, which jumps over the sleep."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from tidegate.threads.bridge import run_sync, substitute_loop

_lock = threading.Lock()
_open = 0
_real_sleep = time.sleep


@contextlib.contextmanager
def virtual_sleep() -> Iterator[None]:
    """Replace `time.sleep` inside the block, for the threads of task functions only."""
    global _open, _real_sleep
    with _lock:
        if _open == 0 and time.sleep is not _sleep:  # a test that replaced it may have put ours back
            _real_sleep, time.sleep = time.sleep, _sleep
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if _open == 0 and time.sleep is _sleep:
                time.sleep = _real_sleep


def _sleep(seconds: Any) -> None:
    substitute = substitute_loop.get()
    if substitute is None or not substitute.is_open or seconds <= 0:
        _real_sleep(seconds)
    else:
        run_sync(asyncio.sleep(seconds))
