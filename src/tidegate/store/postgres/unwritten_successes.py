"""Successful runs that this process has not yet written to the gates of their upstreams.

A gate that flows and has no failure to forget only counts successes. Each process writes these at most once a
second, so that a finish seldom writes to a gate.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

from tidegate.limits.gate_rows import SUCCESS_SECONDS

R = TypeVar("R")


class UnwrittenSuccesses(Generic[R]):
    """Keeps runs by upstream. All event loops and threads of the process may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, list[R]]] = {}

    def keep(self, upstream: str, runs: Sequence[R], now: float) -> list[R]:
        """Keep these runs; return all runs of the upstream instead if the first is too old to be kept."""
        with self._lock:
            since, kept = self._kept.setdefault(upstream, (now, []))
            kept += runs
            if 0 <= now - since < SUCCESS_SECONDS:
                return []
            del self._kept[upstream]
            return kept

    def take(self, upstreams: Sequence[str] | None = None) -> list[R]:
        """Return and forget the runs of these upstreams, or of all."""
        with self._lock:
            names = list(self._kept) if upstreams is None else upstreams
            return [run for name in names if name in self._kept for run in self._kept.pop(name)[1]]
