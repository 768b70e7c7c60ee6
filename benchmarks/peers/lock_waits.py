"""How two workers of Tidegate get along: how full their claims are, and who waits for whose lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

VARIABLE = "BENCH_CLAIMS"
"""Names the file to which each worker adds a line a claim: slots asked for, tasks taken."""

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = 'round'"


def note_claims(store: Any) -> None:
    """Let a store's claims be noted, where that is asked for."""
    if VARIABLE not in os.environ:
        return
    claim = store.claim
    notes = open(os.environ[VARIABLE], "a", buffering=1)  # noqa: SIM115 - open as long as the worker lives

    async def noted(ask: Any) -> Any:
        answer = await claim(ask)
        notes.write(f"{ask.slots} {len(answer.tasks)}\n")
        return answer

    store.claim = noted


def fullness(path: Path) -> float:
    """Return the share of the slots that claims filled, as long as there were tasks for all of them.

    Claims of the queue's last tasks cannot be full: of those that found any, the last two are left out, one
    for each worker.
    """
    claims = [tuple(map(int, line.split())) for line in path.read_text(encoding="utf-8").splitlines()]
    found = [(slots, taken) for slots, taken in claims if taken][:-2]
    return sum(taken for _, taken in found) / max(1, sum(slots for slots, _ in found))


class LockWaitSampler:
    """Looks now and then whether any connection waits for another's lock."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._looks = 0
        self._waits = 0

    @classmethod
    @contextmanager
    def at(cls, url: str) -> Iterator[LockWaitSampler]:
        """Look at the server of this URL, for a block."""
        with psycopg.connect(url, autocommit=True) as connection:
            yield cls(connection)

    def look(self) -> None:
        """Look once."""
        row = self._connection.execute(_WAITING).fetchone()
        self._looks += 1
        self._waits += row[0] if row else 0

    def mean(self) -> float:
        """Return how many connections waited at a moment, on average."""
        return self._waits / max(1, self._looks)
