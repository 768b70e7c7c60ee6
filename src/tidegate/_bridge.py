"""The one bridge for sync callers: a loop in a daemon thread, shared by the whole process."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidegate.errors import ConfigError, TidegateError, UsageError

T = TypeVar("T")

_PATCHERS = {"gevent.monkey": ("threading", "select"), "eventlet.patcher": ("thread", "select")}
"""Modules that can say what they have replaced, and what an event loop in a thread needs as it was."""
_UWSGI_THREAD_OPTIONS = {"enable-threads", "threads"}

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from sync code and return its result.

    Raises:
        UsageError: Called inside a running event loop, where it would block everything; or while the
            interpreter ends, when the thread of the loop runs no more.
        ConfigError: This process has no real threads: see `require_threads`.
    """
    try:
        require_threads()
        _require_running_interpreter()
    except TidegateError:
        work.close()
        raise
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


def _require_running_interpreter() -> None:
    """Raise where daemon threads are stopped for good: a call would wait for ever.

    Raises:
        UsageError: The interpreter is being finalized.
    """
    if sys.is_finalizing():
        raise UsageError(
            "a …_sync method was called while the interpreter ends",
            fix="call it before, for example in an atexit handler, not in __del__ of what lives to the end",
        )


def require_threads() -> None:
    """Raise unless threads of this process run side by side; called at each use, since it may change.

    Under gevent and eventlet, threads are greenlets that take turns in one thread, and an event loop in one
    of them either blocks the others or is taken for theirs. uWSGI runs no thread but its own unless told to.

    Raises:
        ConfigError: They do not; with the server's setting that helps.
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
    """Return the running loop; the bridge's where none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return _bridge_loop()


def _bridge_loop() -> asyncio.AbstractEventLoop:
    """Return the bridge's loop; a forked child gets its own."""
    global _loop
    require_threads()
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="tidegate-bridge", daemon=True).start()
        return _loop


def _reset_after_fork() -> None:
    """Forget in a forked child what the parent's threads hold and run."""
    global _loop, _lock
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_reset_after_fork)
