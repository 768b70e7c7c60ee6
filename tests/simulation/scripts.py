"""Scripts: a task's arguments say what its function does, one line for each run.

So a failing history is easy to read, and a task does the same in any order of events:

    ok 1.5            work for this many seconds, then return
    progress 2        the same, reporting progress
    transient 0.1     raise Transient after this many seconds
    permanent 0.1     raise Permanent
    unknown 0.1       raise an error that no rule classifies
    forbidden 0.1     raise a KeyError, which one function discards
    network 0.1       raise a ConnectionError, for which one function has a rule
    wait 3            raise RetryAfter(3)
    overrun           run until stopped
    swallow 4         when stopped, run on for this many seconds, then return a result
    again 2           ctx.retry(after=2), charged
    free 2            ctx.retry(after=2, charge=False)

The last line is that of all further runs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def make_script(rng: random.Random, lease: float) -> list[str]:
    """Return what one task does, run by run. The last line is one that lets it end."""
    lines = [_line(rng, lease, _LINES) for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3)))]
    return [*lines, _line(rng, lease, _LAST_LINES)]


_LINES = (
    "ok", "transient", "transient", "unknown", "network", "forbidden", "wait", "overrun", "swallow", "again",
    "free",
)  # fmt: skip
_LAST_LINES = (
    "ok",
    "ok",
    "ok",
    "ok",
    "long",
    "long",
    "progress",
    "progress",
    "transient",
    "permanent",
    "swallow",
)


def _line(rng: random.Random, lease: float, words: Sequence[str]) -> str:
    word = rng.choice(words)
    if word == "overrun":
        return word
    if word == "long":
        return f"ok {lease * rng.uniform(1.0, 3.0):.2f}"
    longest = {"progress": 1.5, "wait": 1.5, "again": 1.0, "free": 1.0, "swallow": 0.4}.get(word, 0.3)
    return f"{word} {lease * longest * rng.random():.2f}"
