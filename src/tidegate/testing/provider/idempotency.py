"""Answers kept under their idempotency keys, for a provider that honours them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidegate.testing.provider.completions import Completion
from tidegate.testing.provider.refusals import Refusal, idempotency_key_reused


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    content_hash: str
    answer: asyncio.Future[Completion | None]
    """None if the call was refused; the key is then free again."""


class IdempotencyCache:
    """The first answer under each key, for as long as the server runs."""

    def __init__(self) -> None:
        self._entries: dict[str, _CacheEntry] = {}

    async def get_or_generate(
        self, key: str, content_hash: str, generate: Callable[[], Awaitable[Completion | Refusal]]
    ) -> tuple[Completion | Refusal, bool]:
        """Return the answer to a call, and whether it was kept under `key` before. If not, generate it.

        A call that arrives while the first is being answered waits for that answer. Refusals are not kept.
        """
        while (entry := self._entries.get(key)) is not None:
            if entry.content_hash != content_hash:
                return idempotency_key_reused(), False
            # Shielded: a waiter that goes away must not take the answer from the others.
            answer = await asyncio.shield(entry.answer)
            if answer is not None:
                return answer, True
        return await self._generate_first(key, content_hash, generate), False

    async def _generate_first(
        self, key: str, content_hash: str, generate: Callable[[], Awaitable[Completion | Refusal]]
    ) -> Completion | Refusal:
        entry = _CacheEntry(content_hash, asyncio.get_running_loop().create_future())
        self._entries[key] = entry
        outcome: Completion | Refusal | None = None
        try:
            outcome = await generate()
        finally:
            answer = outcome if isinstance(outcome, Completion) else None
            if answer is None:
                self._entries.pop(key, None)
            entry.answer.set_result(answer)
        return outcome

    def clear(self) -> None:
        """Forget every key."""
        self._entries.clear()
