"""Answers kept under their idempotency keys, for a provider that honours them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidegate.testing.provider.answers import Answer
from tidegate.testing.provider.refusals import Refusal, key_reused


@dataclass(frozen=True, slots=True)
class _Kept:
    content_hash: str
    answer: asyncio.Future[Answer | None]
    """None: the call was refused, and the key is free again."""


class Replays:
    """The first answer under each key, for as long as the server runs."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    async def once(
        self, key: str, content_hash: str, generate: Callable[[], Awaitable[Answer | Refusal]]
    ) -> tuple[Answer | Refusal, bool]:
        """Return the answer kept under `key` and True; or generate it, and return it and False.

        A call that comes while the first is being answered waits for it. Refusals are not kept.
        """
        while (kept := self._kept.get(key)) is not None:
            if kept.content_hash != content_hash:
                return key_reused(), False
            # Shielded: a waiter that goes away must not take the answer from the others.
            answer = await asyncio.shield(kept.answer)
            if answer is not None:
                return answer, True
        return await self._first(key, content_hash, generate), False

    async def _first(
        self, key: str, content_hash: str, generate: Callable[[], Awaitable[Answer | Refusal]]
    ) -> Answer | Refusal:
        kept = _Kept(content_hash, asyncio.get_running_loop().create_future())
        self._kept[key] = kept
        outcome: Answer | Refusal | None = None
        try:
            outcome = await generate()
        finally:
            answer = outcome if isinstance(outcome, Answer) else None
            if answer is None:
                self._kept.pop(key, None)
            kept.answer.set_result(answer)
        return outcome

    def clear(self) -> None:
        """Forget every key."""
        self._kept.clear()
