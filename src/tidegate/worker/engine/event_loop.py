"""The event loop of a pool process: uvloop where it is installed, else asyncio's own."""

from __future__ import annotations

import asyncio
import importlib.util
import time

from tidegate.errors import ConfigError


def new_event_loop(kind: str) -> asyncio.AbstractEventLoop:
    """Return a new event loop.

    Args:
        kind: `uvloop`, `asyncio`, or `auto` for uvloop if it is installed.

    Raises:
        ConfigError: `uvloop` is wanted, and is not installed.
    """
    is_installed = importlib.util.find_spec("uvloop") is not None
    if kind == "uvloop" and not is_installed:
        raise ConfigError(
            "event_loop is uvloop, but uvloop is not installed",
            fix="pip install 'tidegate[uvloop]', or write event_loop = \"auto\"",
            option="event_loop",
        )
    return _new_uvloop() if is_installed and kind != "asyncio" else asyncio.new_event_loop()


def _new_uvloop() -> asyncio.AbstractEventLoop:
    """Return a uvloop whose clock is always current.

    uvloop reads the clock once in each turn of the loop. A task function that blocks the loop for a minute
    would leave it a minute slow for the rest of the turn, and tasks would start after the lease has ended.
    """
    import uvloop

    class Loop(uvloop.Loop):
        def time(self) -> float:
            return time.monotonic()

    return Loop()
