"""Threads for the plain functions of steps, so that these do not block the event loop.

These threads are not those of the loop's executor. A function that never returns keeps its thread for ever,
and the loop needs its own threads, for example to look up addresses.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tidegate.threads.daemon_threads import DaemonThreadPool, FunctionRaised

_threads = DaemonThreadPool("tidegate-step")


async def run_in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a thread, in a copy of the current context; return or raise what it did."""
    try:
        return await _threads.run(function)
    except FunctionRaised as raised:
        raise raised.error from raised.error.__cause__


def are_threads_awaited() -> bool:
    """Return whether a step waits for a function in one of the threads.

    The test kit moves the time on only while no step waits.
    """
    return _threads.awaited > 0


def _renew() -> None:
    """Forget the threads of the parent process, which a fork does not copy."""
    global _threads
    _threads = DaemonThreadPool("tidegate-step")


os.register_at_fork(after_in_child=_renew)
