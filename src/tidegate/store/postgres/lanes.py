"""Where ready tasks are: lanes, and from which rank on they hold tasks.

While somebody holds a snapshot open, the entries of claimed tasks cannot be removed from the index, and
each look walks over all of them again. So, where looking has become costly, the next second's looks start
where the last one found the first task. What appears below such a bound, or in a new lane, waits for the
next full look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.store.rows import ClaimAsk

COSTLY_ENTRIES = 2_000
"""Of the index, walked over in vain by one look: a millisecond or two."""

LOOK_AGAIN_SECONDS = 1.0
"""Between two looks without bounds."""

LOOK_SERVES_SECONDS = 0.02
"""How long large claims go on with the one lane that a look found, where it fills all slots. What is more
urgent and comes up in another lane waits so much longer at most."""

LARGE_CLAIM = 200
"""Slots from which on that is worth it; a smaller claim looks each time."""

_MANY_ASKS = 100

Name = tuple[str, int, str, str]
"""Queue, priority, upstream, function."""


class Lane(NamedTuple):
    """The part of a channel that one function's tasks form, as a look found it."""

    queue: str
    priority: int
    upstream: str
    function: str
    place: int
    """Of its queue in listed order; 0 where that does not matter."""
    first_rank: float | None
    """Of its first task; None: it has none."""
    places: Sequence[int]
    """Of its first tasks among those of all lanes of the priority, from 1."""

    @property
    def name(self) -> Name:
        """What tells it from others."""
        return (self.queue, self.priority, self.upstream, self.function)


@dataclass(slots=True)
class _Bounds:
    """Lanes with the place and bound of each, good until a moment."""

    until: float
    lanes: dict[Name, tuple[int, float]] = field(default_factory=dict)


class KnownLanes:
    """Remembers what looks have found, for each kind of ask.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_ask: dict[Any, _Bounds] = {}
        self._only: tuple[Any, Lane, float] | None = None
        """An ask, the lane that has enough for it, and until when that is taken for true."""

    def only(self, ask: ClaimAsk) -> Lane | None:
        """Return the lane that was found alone, moments ago, with tasks for all slots; None to look."""
        if self._only is None or ask.slots < LARGE_CLAIM:
            return None
        kind, lane, until = self._only
        return lane if self._clock() < until and kind == _kind(ask) else None

    def found_only(self, ask: ClaimAsk, lane: Lane) -> None:
        """Remember that a look found tasks in this lane alone, enough for all slots, and no gates."""
        if ask.slots >= LARGE_CLAIM:
            self._only = (_kind(ask), lane, self._clock() + LOOK_SERVES_SECONDS)

    def columns(self, ask: ClaimAsk) -> tuple[list[Any] | None, ...]:
        """Return queues, priorities, upstreams, functions, places and bounds; None to look for all lanes."""
        known = self._by_ask.get(_kind(ask))
        if known is None or self._clock() >= known.until:
            return (None,) * 6
        rows = [(*name, place, bound) for name, (place, bound) in known.lanes.items()]
        return tuple([list(column) for column in zip(*rows, strict=True)]) if rows else (None,) * 6

    def found(self, ask: ClaimAsk, lanes: Collection[Lane], entries: int, *, everywhere: bool) -> None:
        """Remember a look that found these lanes, and walked over so many entries of the index for it."""
        kind = _kind(ask)
        if everywhere:
            self._by_ask.pop(kind, None)
            if entries - len(lanes) * ask.slots < COSTLY_ENTRIES:
                return
            if len(self._by_ask) >= _MANY_ASKS:
                self._by_ask.clear()
            self._by_ask[kind] = _Bounds(self._clock() + LOOK_AGAIN_SECONDS)
        known = self._by_ask.get(kind)
        if known is not None:
            for lane in lanes:
                if lane.first_rank is not None:
                    known.lanes[lane.name] = (lane.place, lane.first_rank)


def _kind(ask: ClaimAsk) -> Any:
    functions: Mapping[str, Any] = ask.functions
    return (ask.queues, ask.strict, tuple(functions))
