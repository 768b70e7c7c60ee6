"""Runs coroutines for sync callers, on one event loop in a daemon thread that the whole process shares."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from tidegate.errors import ConfigError, TidegateError, UsageError

T = TypeVar("T")

_PATCHERS = {"gevent.monkey": ("threading", "select"), "eventlet.patcher": ("thread", "select")}
"""Monkey-patching modules, and the standard modules an event loop in a thread needs unpatched."""
_UWSGI_THREAD_OPTIONS = {"enable-threads", "threads"}


class SubstituteLoop(Protocol):
    """A loop that serves the sync calls of some code instead of the bridge's loop."""

    loop: asyncio.AbstractEventLoop
    is_open: bool
    """Whether the bridge still serves calls."""

    def caller_waits(self, waiting: Future[Any]) -> None:
        """Note that a thread does nothing until this future is done."""
        ...


substitute_loop: ContextVar[SubstituteLoop | None] = ContextVar("tidegate_substitute_loop", default=None)
"""The loop that serves the sync calls of the current context; None for the bridge's loop."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from sync code and return its result.

    Raises:
        UsageError: Called inside a running event loop, which it would block; or while the interpreter shuts
            down, when the loop's thread no longer runs.
        ConfigError: This process has no real threads; see `require_threads`.
    """
    try:
        require_threads()
        _require_running_interpreter()
        _require_open_substitute()
    except TidegateError:
        work.close()
        raise
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        substitute = _open_substitute()
        loop = _bridge_loop() if substitute is None else substitute.loop
        waiting = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            if substitute is not None:
                substitute.caller_waits(waiting)
            return waiting.result()
        except BaseException:
            waiting.cancel()  # interrupted, for example by Ctrl-C: work that nobody waits for must not go on
            raise
    work.close()
    raise UsageError("a …_sync method was called inside an event loop", fix="await the method without _sync")


def _require_running_interpreter() -> None:
    """Raise if the interpreter is shutting down: daemon threads no longer run, so a call would never return.

    Raises:
        UsageError: The interpreter is shutting down.
    """
    if sys.is_finalizing():
        raise UsageError(
            "a …_sync method was called while the interpreter shuts down",
            fix="call it earlier, for example in an atexit handler, not in __del__ of a long-lived object",
        )


def require_threads() -> None:
    """Raise unless this process has real threads. Called at each use, since patching may happen later.

    Under gevent and eventlet, threads are greenlets that take turns in one thread. An event loop in one of
    them blocks the others. uWSGI runs no application threads unless an option enables them.

    Raises:
        ConfigError: There are no real threads. The error names the server setting that helps.
    """
    for module, names in _PATCHERS.items():
        patcher = sys.modules.get(module)
        is_patched = getattr(patcher, "is_module_patched", None) or getattr(
            patcher, "is_monkey_patched", None
        )
        if is_patched is not None and any(map(is_patched, names)):
            tool = module.partition(".")[0]
            raise ConfigError(
                f"{tool} has replaced this process's threads, so Tidegate's sync methods cannot work here",
                fix="serve with real threads: gunicorn --worker-class gthread --threads 16",
            )
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is not None and _UWSGI_THREAD_OPTIONS.isdisjoint(getattr(uwsgi, "opt", {})):
        raise ConfigError(
            "uWSGI runs no threads in this process, so Tidegate's sync methods would wait for ever",
            fix="start it with --enable-threads, or with --threads N",
        )


def start_in_background(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on the bridge's loop without waiting for it."""
    asyncio.run_coroutine_threadsafe(work, _bridge_loop())


def running_or_bridge_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop, or the loop that serves sync calls if none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        substitute = _open_substitute()
        return _bridge_loop() if substitute is None else substitute.loop


def _open_substitute() -> SubstituteLoop | None:
    substitute = substitute_loop.get()
    return substitute if substitute is not None and substitute.is_open else None


def _require_open_substitute() -> None:
    """Raise if this code belongs to a test that has ended: it must not reach the application's own store.

    Raises:
        UsageError: The test has ended.
    """
    substitute = substitute_loop.get()
    if substitute is not None and not substitute.is_open:
        raise UsageError(
            "a task that its test could not end made a sync call after the test",
            fix="give the task a way to end in that test",
        )


def _bridge_loop() -> asyncio.AbstractEventLoop:
    """Return the bridge's loop; a forked child gets its own."""
    global _loop
    require_threads()
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="tidegate-bridge", daemon=True).start()
        return _loop


def abandon_bridge_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Let later calls use a new loop, because a coroutine blocks this one for ever."""
    global _loop
    with _lock:
        if _loop is loop:
            _loop = None


def _reset_after_fork() -> None:
    """Drop the parent's lock and loop in a forked child: their thread does not exist there."""
    global _loop, _lock
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_reset_after_fork)
