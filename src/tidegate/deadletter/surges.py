"""Surges of deaths by function, queue, reason or fingerprint. `policy.surge` describes the method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from tidegate.domain.readers import Seconds, choice_option, seconds_option
from tidegate.errors import OptionError
from tidegate.policy.surge import Deaths, Surge, Window, baseline_windows, find_surge
from tidegate.store.history_rows import WindowCounts, WindowDeaths
from tidegate.store.protocol import Store

SurgeBy = Literal["function", "queue", "reason", "fingerprint"]
"""How the deaths are grouped."""
SURGE_KEYS = get_args(SurgeBy)
DEFAULT_WINDOW = "1h"
MAX_WINDOW_SECONDS = 86_400.0

_KEYS: Mapping[str, Callable[[WindowDeaths], str]] = {
    "function": lambda row: row.function,
    "queue": lambda row: row.queue,
    "reason": lambda row: row.reason,
    "fingerprint": lambda row: row.fingerprint,
}


@dataclass(frozen=True, slots=True)
class GroupSurge:
    """Whether the deaths of one function, queue, reason or fingerprint surge."""

    by: str
    key: str
    """The name of the function, queue or reason, or the fingerprint."""
    surge: Surge


async def find_surges(
    store: Store,
    *,
    by: str = "function",
    window: Seconds = DEFAULT_WINDOW,
    queue: str | None = None,
    function: str | None = None,
    reason: str | None = None,
    fingerprint: str | None = None,
    limit: int = 50,
) -> list[GroupSurge]:
    """Compare the last hour's deaths with those of the same hours of earlier days, group by group.

    Args:
        store: Holds the counters.
        by: A word of `SurgeBy`.
        window: The length of the present period: a minute to a day.
        queue: Only deaths in this queue.
        function: Only deaths of this function.
        reason: Only deaths with this reason.
        fingerprint: Only deaths with this fingerprint.
        limit: How many groups at most.

    Returns:
        The groups that had a death in the window: surges first, then those with the most deaths.

    Raises:
        OptionError: A value is invalid.
    """
    choice_option("by", by, SURGE_KEYS)
    end = int(await store.now() // 60) + 1
    minutes = _minutes(window)
    baseline = baseline_windows(end, minutes, await store.counted_since())
    windows = [Window(end - minutes, end), *baseline.windows]
    counts = await store.count_windows(
        windows, queue=queue, function=function, reason=reason, fingerprint=fingerprint
    )
    found = [
        GroupSurge(by, key, find_surge(periods[0], periods[1:], baseline.name))
        for key, periods in _periods(windows, counts, by).items()
    ]
    found.sort(key=lambda each: (not each.surge.surges, -each.surge.count.now, each.key))
    return found[:limit]


def surge_fields(found: GroupSurge) -> dict[str, Any]:
    """Return what the command line and the HTTP API show of a group."""
    surge = found.surge
    return {
        "by": found.by,
        "key": found.key,
        "surges": surge.surges,
        "why": surge.why,
        "count": asdict(surge.count),
        "share": asdict(surge.share),
    }


def _minutes(window: Seconds) -> int:
    seconds = seconds_option("window", window)
    if not 60.0 <= seconds <= MAX_WINDOW_SECONDS:
        raise OptionError(
            f"a window of {seconds:g} s is out of range",
            fix="choose a minute to a day",
            option="window",
            value=window,
        )
    return int(seconds // 60)


def _periods(windows: list[Window], counts: WindowCounts, by: str) -> dict[str, list[Deaths]]:
    """Return each group's deaths and ended tasks by window. The first window is the present one.

    The ended tasks of a group are all that ended in the functions in which its tasks died (by queue: in the
    queues).
    """
    deaths: dict[str, Counter[int]] = {}
    places: dict[str, set[str]] = {}
    key_of, place_of = _KEYS[by], _KEYS["queue" if by == "queue" else "function"]
    for row in counts.deaths:
        deaths.setdefault(key_of(row), Counter())[row.window] += row.deaths
        places.setdefault(key_of(row), set()).add(place_of(row))
    ended: dict[str, Counter[int]] = {}
    for count in counts.ended:
        place = count.queue if by == "queue" else count.function
        ended.setdefault(place, Counter())[count.window] += count.ended
    return {
        key: [
            Deaths(
                window.end - window.first,
                found[number],
                sum(ended[place][number] for place in places[key] if place in ended),
            )
            for number, window in enumerate(windows)
        ]
        for key, found in deaths.items()
        if found[0]
    }
