"""What belongs to a whole process and outlives a task: directory, umask, environment, timers and so on.

A task may change any of it, by `os.chdir` or `signal.alarm` say, and the next one in the same process must
not meet what it left.
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
"""All but SIGCHLD: libraries keep a handler for it while their programs run."""
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


class ProcessSnapshot:
    """The surroundings of this process as they are now, to be put back later. Made in the main thread."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.umask = os.umask(0o077)
        os.umask(self.umask)
        self._directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._place = _place()
        try:
            self.directory: str | None = os.getcwd()  # noqa: PTH109 - children are started with text
        except OSError:  # it was removed; whoever starts here inherits it all the same
            self.directory = None
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = dict(_handlers())
        self.limits = {limit: resource.getrlimit(limit) for limit in _LIMITS}

    def restore(self) -> tuple[list[str], list[str]]:
        """Put back what was changed; return what that was, and what cannot be. In the main thread."""
        restored: list[str] = []
        lost: list[str] = []
        acts: dict[str, Callable[[], bool]] = {
            "the working directory": self._restore_directory,
            "the umask": lambda: os.umask(self.umask) != self.umask,
            "the environment": self._restore_environment,
            "timers": _stop_timers,
            "signal handlers": self._restore_handlers,
            "blocked signals": self._restore_blocked,
            "resource limits": self._restore_limits,
        }
        for what, act in acts.items():
            try:
                if act():
                    restored.append(what)
            except (OSError, ValueError) as error:
                lost.append(f"{what} ({error})")
        return restored, lost

    def limit(self, pid: int) -> None:
        """Give another process of this user these resource limits, as far as the system lets us."""
        for limit, values in self.limits.items():
            with contextlib.suppress(OSError, ValueError, AttributeError):  # no prlimit outside Linux
                if resource.getrlimit(limit) != values:
                    resource.prlimit(pid, limit, values)

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._directory)

    def _restore_directory(self) -> bool:
        with contextlib.suppress(OSError):
            if _place() == self._place:
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


def _place() -> tuple[int, int]:
    """Return the identity of the working directory, also of one that was removed."""
    found = os.stat(".")  # noqa: PTH116 - after each task; pathlib doubles the cost
    return found.st_dev, found.st_ino


def _handlers() -> Iterator[tuple[int, Any]]:
    """Yield what Python knows of each signal's handling; what foreign code has set it cannot put back."""
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if handler is not None:
            yield number, handler


def _stop_timers() -> bool:
    running = [timer for timer in _TIMERS if signal.getitimer(timer)[0] > 0]
    for timer in running:
        signal.setitimer(timer, 0)
    return bool(running)
