"""Saves and restores the state of a whole process: directory, umask, environment, timers and so on.

A task may change this state, for example by `os.chdir` or `signal.alarm`. The next task in the same process
must not see the change.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterator
from typing import Any

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SIGNALS = tuple(sorted(int(number) for number in signal.valid_signals() if number != signal.SIGCHLD))
"""The signals whose handlers are restored: all except SIGCHLD, which libraries handle while their child
processes run."""
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


class ProcessSnapshot:
    """The state of this process now, to restore later. Create it in the main thread."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.umask = os.umask(0o077)
        os.umask(self.umask)
        self._directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._directory_id = _directory_id()
        try:
            self.directory: str | None = os.getcwd()  # noqa: PTH109 - children are started with text
        except OSError:  # the directory was removed, but child processes can still inherit it
            self.directory = None
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = dict(_handlers())
        self.limits = {limit: resource.getrlimit(limit) for limit in _LIMITS}

    def restore(self) -> tuple[list[str], list[str]]:
        """Restore the state. Return what was restored and what could not be. Call it in the main thread."""
        restored: list[str] = []
        lost: list[str] = []
        steps: dict[str, Callable[[], bool]] = {
            "the working directory": self._restore_directory,
            "the umask": lambda: os.umask(self.umask) != self.umask,
            "the environment": self._restore_environment,
            "timers": _stop_timers,
            "signal handlers": self._restore_handlers,
            "blocked signals": self._restore_blocked,
            "resource limits": self._restore_limits,
        }
        for name, step in steps.items():
            try:
                if step():
                    restored.append(name)
            except (OSError, ValueError) as error:
                lost.append(f"{name} ({error})")
        return restored, lost

    def limit(self, pid: int) -> None:
        """Apply these resource limits to another process of this user, as far as the system permits."""
        for limit, values in self.limits.items():
            with contextlib.suppress(OSError, ValueError, AttributeError):  # no prlimit outside Linux
                if resource.getrlimit(limit) != values:
                    resource.prlimit(pid, limit, values)

    def close(self) -> None:
        """Close the file descriptor of the directory."""
        os.close(self._directory)

    def _restore_directory(self) -> bool:
        with contextlib.suppress(OSError):
            if _directory_id() == self._directory_id:
                return False
        os.fchdir(self._directory)
        return True

    def _restore_environment(self) -> bool:
        if os.environ == self.environment:
            return False
        for name in os.environ.keys() - self.environment.keys():
            del os.environ[name]
        os.environ.update(self.environment)
        return True

    def _restore_handlers(self) -> bool:
        changed = [number for number, handler in _handlers() if handler != self._handlers.get(number)]
        for number in changed:
            signal.signal(number, self._handlers.get(number, signal.SIG_DFL))
        return bool(changed)

    def _restore_blocked(self) -> bool:
        return signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked) != self._blocked

    def _restore_limits(self) -> bool:
        changed = [limit for limit in _LIMITS if resource.getrlimit(limit) != self.limits[limit]]
        for limit in changed:
            resource.setrlimit(limit, self.limits[limit])
        return bool(changed)


def _directory_id() -> tuple[int, int]:
    """Return the identity of the working directory, even if it was removed."""
    found = os.stat(".")  # noqa: PTH116 - after each task; pathlib doubles the cost
    return found.st_dev, found.st_ino


def _handlers() -> Iterator[tuple[int, Any]]:
    """Yield each signal's handler that Python knows. Handlers set by C code cannot be restored."""
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if handler is not None:
            yield number, handler


def _stop_timers() -> bool:
    running = [timer for timer in _TIMERS if signal.getitimer(timer)[0] > 0]
    for timer in running:
        signal.setitimer(timer, 0)
    return bool(running)
