"""The long waits of one run: when to end the run for them, and which of them ends first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that a run waits for."""

    ends_at: float | None
    """When the wait is over, by the clock of the run; None: not at a moment."""
    why: str
    key: str = ""
    """The identity of a wait for an event; empty for other waits."""
    child_ids: tuple[str, ...] = ()
    """The tasks that the run's task waits for."""
    cached: tuple[str, float] | None = None
    """The digest of a result that another task makes, and how old it may be in seconds; None for other
    waits."""


@dataclass(slots=True)
class RunWaits:
    """Counts the steps in flight of a run, and keeps what it waits for. May be used from several threads.

    A run ends for a wait only while none of its steps is in flight: their results would be lost.
    """

    _steps_in_flight: int = 0
    _steps_begun: int = 0
    _streams_given: int = 0
    _waits: dict[object, Wait] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def doing_step(self) -> Iterator[None]:
        """Count a step as in flight inside the block."""
        with self._lock:
            self._steps_in_flight += 1
            self._steps_begun += 1
        try:
            yield
        finally:
            with self._lock:
                self._steps_in_flight -= 1

    @contextmanager
    def pausing_step(self) -> Iterator[None]:
        """Do not count a step of `doing_step` as in flight inside the block: it waits, and does nothing."""
        with self._lock:
            self._steps_in_flight -= 1
        try:
            yield
        finally:
            with self._lock:
                self._steps_in_flight += 1

    @contextmanager
    def waiting(self, wait: Wait) -> Iterator[Wait]:
        """Count a wait as one of the run inside the block."""
        key = object()
        with self._lock:
            self._waits[key] = wait
        try:
            yield wait
        finally:
            with self._lock:
                del self._waits[key]

    def steps(self) -> tuple[int, int]:
        """Return how many steps are in flight, and how many were begun in total."""
        with self._lock:
            return self._steps_in_flight, self._steps_begun

    @contextmanager
    def giving_stream(self) -> Iterator[None]:
        """Note that a step in flight is a stream that the function reads inside the block, or never reads."""
        with self._lock:
            self._streams_given += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams_given -= 1

    def has_unfinished_steps(self) -> bool:
        """Return whether a step is in flight that ends by itself, without a function that reads a stream."""
        with self._lock:
            return self._steps_in_flight > self._streams_given

    def keys(self) -> tuple[str, ...]:
        """Return the identities of the waits for events."""
        with self._lock:
            return tuple(sorted(wait.key for wait in self._waits.values() if wait.key))

    def child_ids(self) -> tuple[str, ...]:
        """Return the tasks that the run waits for: those of the first such wait.

        If the run has several, it wakes for that one, and then waits for the next.
        """
        with self._lock:
            return next((wait.child_ids for wait in self._waits.values() if wait.child_ids), ())

    def cached(self) -> tuple[tuple[str, float], ...]:
        """Return the results of other tasks that the run waits for."""
        with self._lock:
            return tuple({wait.cached for wait in self._waits.values() if wait.cached is not None})

    def first(self) -> Wait:
        """Return the wait that ends first. There must be one."""
        with self._lock:
            return min(
                self._waits.values(),
                key=lambda wait: float("inf") if wait.ends_at is None else wait.ends_at,
            )
