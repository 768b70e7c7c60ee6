"""What a fork must not break: SQLite's mutexes, the parent's file locks, and connections of two processes.

Runners enter themselves here. Around every `os.fork` of this process their threads stand still, and in
the child they forget what they had; it opens anew at its first use.
https://sqlite.org/howtocorrupt.html, 2.6
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Protocol

import apsw

_QUIET_SECONDS = 5.0
"""How long a fork waits for work under way."""


class ForkAware(Protocol):
    """Something with threads and connections."""

    def quiet_locks(self) -> list[threading.Lock]:
        """Return the locks held while SQLite is at work."""

    def forget(self) -> None:
        """Begin anew in the child."""


_known: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_held: list[threading.Lock] = []


def enter(runner: ForkAware) -> None:
    """Take care of this runner at every fork for as long as it lives."""
    _known.add(runner)


def leak_connection(inherited: apsw.Connection | None) -> None:
    """Keep a connection that belongs to the parent from ever being closed here, even at exit."""
    if inherited is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _stand_still() -> None:
    for runner in list(_known):
        _held.extend(lock for lock in runner.quiet_locks() if lock.acquire(timeout=_QUIET_SECONDS))


def _go_on() -> None:
    while _held:
        _held.pop().release()


def _begin_anew() -> None:
    _held.clear()
    for runner in list(_known):
        runner.forget()


os.register_at_fork(before=_stand_still, after_in_parent=_go_on, after_in_child=_begin_anew)
