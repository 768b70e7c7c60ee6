"""Settles the tokens of calls that no claim charged, such as the further calls of a run.

A settlement is written together with the next slot of the same gate. If no call asks for a slot soon, the
settlement is written alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidegate.calls.results import run_in_background
from tidegate.domain.usage import CallTokens, Tokens, TokenUse
from tidegate.store.protocol import Store

BETWEEN_WRITES_SECONDS = 1.0


@dataclass(slots=True)
class ChargedTokens:
    """The tokens that one gate charged for a call."""

    gate: str
    tokens: Tokens
    at: float
    """When they were charged, by this process's clock."""


class TokenSettlements:
    """The settlements of one upstream and its keys that are not written yet. Any thread may use them.

    Args:
        opened_store: Returns the open store.
        clock: Returns monotonic seconds.
    """

    def __init__(self, opened_store: Callable[[], Awaitable[Store]], clock: Callable[[], float]) -> None:
        self._opened_store = opened_store
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[float, TokenUse]]] = {}
        self._writes_at = 0.0
        """The time by which the present background write has ended; another may start then."""

    def add(self, function: str, charged: list[ChargedTokens], call: CallTokens) -> None:
        """Settle what was charged for a call that has ended."""
        if not charged:
            return
        with self._lock:
            for each in charged:
                use = TokenUse(function, each.tokens, call)
                self._waiting.setdefault(each.gate, []).append((each.at, use))
            starts = self._clock() >= self._writes_at
            if starts:
                self._writes_at = self._clock() + 2 * BETWEEN_WRITES_SECONDS
        if starts:
            run_in_background(self._write())

    def take(self, gate: str) -> list[TokenUse]:
        """Return the settlements of a gate, which the caller will write."""
        with self._lock:
            waiting, now = self._waiting.pop(gate, []), self._clock()
        return [use._replace(seconds_ago=now - at) for at, use in waiting]

    async def _write(self) -> None:
        await asyncio.sleep(BETWEEN_WRITES_SECONDS)
        with self._lock:
            gates, self._writes_at = list(self._waiting), 0.0
        if gates:
            store = await self._opened_store()
            for gate in gates:
                if uses := self.take(gate):
                    await store.settle_tokens(gate, uses)
