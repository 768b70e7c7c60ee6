"""Outages of the provider: by timetable or started by hand. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tidegate.errors import OptionError
from tidegate.testing.provider.buckets import Monotonic

OutageKind = Literal["503", "hang", "refuse", "reset"]
"""503: every call gets a 503. hang: calls are read, but get no response. reset: calls are read, then the
connection is reset. refuse: nothing listens on the port; calls in progress still get a response."""

OUTAGE_KINDS: tuple[OutageKind, ...] = get_args(OutageKind)


@dataclass(frozen=True, slots=True)
class Outage:
    """One outage of a timetable."""

    start_seconds: float
    """When the outage begins, in seconds from the server's start."""
    end_seconds: float
    """When the outage ends, in seconds from the server's start; more than `start_seconds`."""
    kind: OutageKind = "503"

    def __post_init__(self) -> None:
        if self.kind not in OUTAGE_KINDS:
            raise OptionError(f"kind={self.kind!r} is not a kind of outage", fix=f"one of {OUTAGE_KINDS}")
        if not 0 <= self.start_seconds < self.end_seconds:
            raise OptionError(f"an outage from {self.start_seconds} s to {self.end_seconds} s is empty")


class OutageSchedule:
    """Knows the current outage. An outage started by hand takes precedence over planned ones.

    Args:
        outages: The planned outages; if two overlap, the first in this order is active.
        monotonic: Seconds on any clock that never goes back; the timetable starts now.
    """

    def __init__(self, outages: Sequence[Outage], *, monotonic: Monotonic) -> None:
        self._outages = tuple(outages)
        self._monotonic = monotonic
        self._started_at = monotonic()
        self._manual: Outage | None = None

    @property
    def current(self) -> OutageKind | None:
        """The kind of the current outage, or None."""
        now = self._elapsed_seconds()
        for outage in self._all_outages():
            if outage.start_seconds <= now < outage.end_seconds:
                return outage.kind
        return None

    def begin(self, kind: OutageKind, seconds: float | None = None) -> None:
        """Start an outage now, replacing one started by hand. If `seconds` is None, it lasts until `end`."""
        now = self._elapsed_seconds()
        self._manual = Outage(now, math.inf if seconds is None else now + seconds, kind)

    def end(self) -> None:
        """End the outage started by hand, if any. Planned outages keep their times."""
        self._manual = None

    def set_planned(self, outages: Sequence[Outage]) -> None:
        """Replace the planned outages; times still count from the start."""
        self._outages = tuple(outages)

    def restart(self) -> None:
        """Start over: no outage by hand, planned times count from now."""
        self._manual = None
        self._started_at = self._monotonic()

    def next_change_seconds(self) -> float | None:
        """Return the time until an outage begins or ends; None if nothing more is planned."""
        now = self._elapsed_seconds()
        edges = (
            edge for outage in self._all_outages() for edge in (outage.start_seconds, outage.end_seconds)
        )
        ahead = [edge - now for edge in edges if now < edge < math.inf]
        return min(ahead, default=None)

    def _all_outages(self) -> tuple[Outage, ...]:
        return self._outages if self._manual is None else (self._manual, *self._outages)

    def _elapsed_seconds(self) -> float:
        return self._monotonic() - self._started_at
