"""What a queue must be able to do to be measured; each file of a queue has one `Peer` that can.

Only the standard library is imported here: this runs inside the peers' own environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any


class PeerQueue:
    """One queue. Every method may be a coroutine function; what is not overridden is not measured."""

    def __init__(self) -> None:
        self.url = os.environ["BENCH_URL"]

    def create(self) -> Any:
        """Make tables, where the queue needs any."""

    def open(self) -> Any:
        """Connect a client."""

    def close(self) -> Any:
        """Disconnect it."""

    def enqueue(self, number: int) -> Any:
        """Store one no-op task, durable as the queue promises when this returns."""
        raise NotImplementedError

    enqueue_many: Callable[[Sequence[int]], Any] | None = None
    """Store many in one call, where the queue has such a call."""

    fill: Callable[[Sequence[int]], Any] | None = None
    """Store many by a short cut of ours, for set-up only, where it has not."""

    def ask(self, number: int) -> Any:
        """Store one whose pickup is timed."""
        return self.enqueue(number)

    def work(self) -> Any:
        """Be one worker process until SIGTERM."""
        raise NotImplementedError
