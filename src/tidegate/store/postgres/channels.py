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

from tidegate.store.rows import ClaimRequest

COSTLY_ENTRIES = 2_000
"""Of the index, walked over in vain by one look: a millisecond or two."""

FULL_PEEK_SECONDS = 1.0
"""Between two looks without bounds."""

PEEK_REUSE_SECONDS = 0.02
"""How long large claims go on with the one lane that a look found, where it fills all slots. What is more
urgent and comes up in another lane waits so much longer at most."""

LARGE_CLAIM = 200
"""Slots from which on that is worth it; a smaller claim looks each time."""

_MAX_REQUESTS = 100

ChannelKey = tuple[str, int, str, str]
"""Queue, priority, upstream, function."""


class Channel(NamedTuple):
    """The part of a channel that one function's tasks form, as a look found it."""

    queue: str
    priority: int
    upstream: str
    function: str
    position: int
    """Of its queue in listed order; 0 where that does not matter."""
    first_rank: float | None
    """Of its first task; None: it has none."""
    positions: Sequence[int]
    """Of its first tasks among those of all lanes of the priority, from 1."""

    @property
    def name(self) -> ChannelKey:
        """What tells it from others."""
        return (self.queue, self.priority, self.upstream, self.function)


@dataclass(slots=True)
class _Bounds:
    """Lanes with the place and bound of each, good until a moment."""

    until: float
    channels: dict[ChannelKey, tuple[int, float]] = field(default_factory=dict)


class KnownChannels:
    """Remembers what looks have found, for each kind of ask.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_request: dict[Any, _Bounds] = {}
        self._only: tuple[Any, Channel, float] | None = None
        """An ask, the lane that has enough for it, and until when that is taken for true."""

    def only(self, request: ClaimRequest) -> Channel | None:
        """Return the lane that was found alone, moments ago, with tasks for all slots; None to look."""
        if self._only is None or request.slots < LARGE_CLAIM:
            return None
        kind, channel, until = self._only
        return channel if self._clock() < until and kind == _request_kind(request) else None

    def remember_only(self, request: ClaimRequest, channel: Channel) -> None:
        """Remember that a look found tasks in this lane alone, enough for all slots, and no gates."""
        if request.slots >= LARGE_CLAIM:
            self._only = (_request_kind(request), channel, self._clock() + PEEK_REUSE_SECONDS)

    def known_columns(self, request: ClaimRequest) -> tuple[list[Any] | None, ...]:
        """Return queues, priorities, upstreams, functions, places and bounds; None to look for all lanes."""
        known = self._by_request.get(_request_kind(request))
        if known is None or self._clock() >= known.until:
            return (None,) * 6
        rows = [(*name, position, bound) for name, (position, bound) in known.channels.items()]
        return tuple([list(column) for column in zip(*rows, strict=True)]) if rows else (None,) * 6

    def remember(
        self, request: ClaimRequest, channels: Collection[Channel], entries: int, *, everywhere: bool
    ) -> None:
        """Remember a look that found these lanes, and walked over so many entries of the index for it."""
        kind = _request_kind(request)
        if everywhere:
            self._by_request.pop(kind, None)
            if entries - len(channels) * request.slots < COSTLY_ENTRIES:
                return
            if len(self._by_request) >= _MAX_REQUESTS:
                self._by_request.clear()
            self._by_request[kind] = _Bounds(self._clock() + FULL_PEEK_SECONDS)
        known = self._by_request.get(kind)
        if known is not None:
            for channel in channels:
                if channel.first_rank is not None:
                    known.channels[channel.name] = (channel.position, channel.first_rank)


def _request_kind(request: ClaimRequest) -> Any:
    functions: Mapping[str, Any] = request.functions
    return (request.queues, request.is_strict, tuple(functions))
