"""Deaths and ended tasks in some ranges of minutes, to compare a period with earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.policy.surge import Window
from tidegate.store.common.session import Session
from tidegate.store.history_rows import WindowCounts, WindowDeaths, WindowEnded

_HOUR = 60


async def counted_since(db: Session) -> int | None:
    """Return the first minute (counted from the epoch) that has counters; None if no minute has."""
    row = await db.row(db.sql("count_windows")["since"])
    assert row is not None
    hour, minute, unfolded = row
    if hour is not None and minute is not None and minute - hour < _HOUR:
        hour = minute  # the store is so young that its first minute is known
    return min((each for each in (hour, unfolded) if each is not None), default=None)


async def count_windows(
    db: Session,
    windows: Sequence[Window],
    *,
    queue: str | None = None,
    function: str | None = None,
    reason: str | None = None,
    fingerprint: str | None = None,
) -> WindowCounts:
    """Return how many tasks died, and how many ended, in each range."""
    sql = db.sql("count_windows")
    ranges = [(number, *window) for number, window in enumerate(windows)]
    parts = [(number, *part) for number, window in enumerate(windows) for part in _parts(window)]
    deaths = await db.run_each(sql["deaths"], ranges, queue, function, reason, fingerprint)
    ended = await db.run_each(sql["ended"], parts, queue, function)
    return WindowCounts([WindowDeaths(*row) for row in deaths], [WindowEnded(*row) for row in ended])


def _parts(window: Window) -> Iterator[tuple[bool, int, int]]:
    """Yield the full hours of a range and the remaining minutes: whether hours, first minute, end."""
    first, end = window.first + -window.first % _HOUR, window.end - window.end % _HOUR
    if first >= end:
        yield False, window.first, window.end
        return
    for part in ((False, window.first, first), (True, first, end), (False, end, window.end)):
        if part[1] < part[2]:
            yield part
