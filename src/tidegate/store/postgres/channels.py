"""Channels with ready tasks, and the rank from which each has tasks.

While any transaction holds an old snapshot, the index keeps the entries of claimed tasks, and each scan reads
all of them again. So after a costly scan, the scans of the next second start at the first task that this scan
found. Tasks that appear below such a bound, or in a new channel, wait for the next full scan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.store.rows import ClaimRequest

COSTLY_ENTRIES = 2_000
"""A scan that reads this many dead index entries counts as costly: it takes 1 to 2 ms."""

FULL_PEEK_SECONDS = 1.0
"""Interval between two scans without bounds."""

PEEK_REUSE_SECONDS = 0.02
"""If a scan found only one channel, and its tasks fill all slots, large claims reuse this result for this
many seconds. A more urgent task in another channel waits at most this much longer."""

LARGE_CLAIM = 200
"""A claim for at least this many slots reuses a channel; a smaller claim scans each time."""

_MAX_REQUESTS = 100

ChannelKey = tuple[str, int, str, str]
"""Queue, priority, upstream, function."""


class Channel(NamedTuple):
    """The tasks of one function in a channel, as a scan found them."""

    queue: str
    priority: int
    upstream: str
    function: str
    position: int
    """The position of the channel's queue in the listed order; 0 if the order does not matter."""
    first_rank: float | None
    """The rank of the channel's first task; None if it has no task."""
    positions: Sequence[int]
    """The positions of the channel's first tasks in the order of all tasks of the priority, from 1."""

    @property
    def name(self) -> ChannelKey:
        """The key that identifies the channel."""
        return (self.queue, self.priority, self.upstream, self.function)


@dataclass(slots=True)
class _Bounds:
    """Channels with the position and bound of each, valid until a moment."""

    until: float
    channels: dict[ChannelKey, tuple[int, float]] = field(default_factory=dict)


class KnownChannels:
    """Remembers the results of scans, for each kind of request.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_request: dict[Any, _Bounds] = {}
        self._only: tuple[Any, Channel, float] | None = None
        """A request, the channel that has enough tasks for it, and until when that is assumed."""

    def only(self, request: ClaimRequest) -> Channel | None:
        """Return the only channel of a very recent scan, if it fills all slots. None: a scan is needed."""
        if self._only is None or request.slots < LARGE_CLAIM:
            return None
        kind, channel, until = self._only
        return channel if self._clock() < until and kind == _request_kind(request) else None

    def remember_only(self, request: ClaimRequest, channel: Channel) -> None:
        """Remember that a scan found tasks only in this channel, enough for all slots, and no gates."""
        if request.slots >= LARGE_CLAIM:
            self._only = (_request_kind(request), channel, self._clock() + PEEK_REUSE_SECONDS)

    def known_columns(self, request: ClaimRequest) -> tuple[list[Any] | None, ...]:
        """Return queues, priorities, upstreams, functions, positions and bounds. None: scan all channels."""
        known = self._by_request.get(_request_kind(request))
        if known is None or self._clock() >= known.until:
            return (None,) * 6
        rows = [(*name, position, bound) for name, (position, bound) in known.channels.items()]
        return tuple([list(column) for column in zip(*rows, strict=True)]) if rows else (None,) * 6

    def remember(
        self, request: ClaimRequest, channels: Collection[Channel], entries: int, *, everywhere: bool
    ) -> None:
        """Remember a scan that found these channels and read `entries` entries of the index."""
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
