"""The long waits of one run: when to end the run for them, and which of them ends first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LEFT_SECONDS = 10.0
"""A stream that the function has not read for this long counts as left."""


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


class GivenStream:
    """A stream that the function got, and that it reads, or has left without closing it.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._read_at = clock()
        self._is_read = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Note that the function waits for the next piece inside the block."""
        self._is_read = True
        try:
            yield
        finally:
            self._is_read, self._read_at = False, self._clock()

    @property
    def is_left(self) -> bool:
        """Whether the function has not read the stream for a while."""
        return not self._is_read and self._clock() - self._read_at > LEFT_SECONDS


@dataclass(slots=True)
class RunWaits:
    """Counts the steps in flight of a run, and keeps what it waits for. May be used from several threads.

    A run ends for a wait only while none of its steps is in flight: their results would be lost.
    """

    _steps_in_flight: int = 0
    _steps_begun: int = 0
    _streams: set[GivenStream] = field(default_factory=set)
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
        """Return how many steps are in flight, and how many were begun in total.

        Streams that the function has left do not count: they would hold the run up for ever.
        """
        with self._lock:
            left = sum(stream.is_left for stream in self._streams)
            return self._steps_in_flight - left, self._steps_begun

    @contextmanager
    def giving_stream(self, clock: Callable[[], float]) -> Iterator[GivenStream]:
        """Note that a step in flight is a stream that the function reads inside the block, or leaves."""
        stream = GivenStream(clock)
        with self._lock:
            self._streams.add(stream)
        try:
            yield stream
        finally:
            with self._lock:
                self._streams.discard(stream)

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
