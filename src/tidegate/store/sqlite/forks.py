"""Keep forks from breaking SQLite's mutexes, the parent's file locks and shared connections.

Runners register here. Around every `os.fork` of this process their threads pause. In the child they forget
their connections and open new ones at the first use. https://sqlite.org/howtocorrupt.html, 2.6
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Protocol

import apsw

_QUIET_SECONDS = 5.0
"""How long a fork waits for running work."""


class ForkAware(Protocol):
    """An object that has threads and connections."""

    def quiet_locks(self) -> list[threading.Lock]:
        """Return the locks held while SQLite is at work."""

    def forget(self) -> None:
        """Forget threads and connections in the child."""


_known: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_held: list[threading.Lock] = []


def enter(runner: ForkAware) -> None:
    """Register a runner: every fork handles it as long as it lives."""
    _known.add(runner)


def leak_connection(inherited: apsw.Connection | None) -> None:
    """Keep a connection of the parent from being closed in this process, even at exit."""
    if inherited is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _pause_runners() -> None:
    for runner in list(_known):
        _held.extend(lock for lock in runner.quiet_locks() if lock.acquire(timeout=_QUIET_SECONDS))


def _resume_runners() -> None:
    while _held:
        _held.pop().release()


def _reset_in_child() -> None:
    _held.clear()
    for runner in list(_known):
        runner.forget()


os.register_at_fork(before=_pause_runners, after_in_parent=_resume_runners, after_in_child=_reset_in_child)
