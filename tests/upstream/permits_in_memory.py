"""Permits without a store: they grant what they are told to, and remember what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidegate.domain.permit import Ask, CallEnd
from tidegate.domain.usage import SeenLimit
from tidegate.errors import TidegateError


class GrantedPermit:
    def __init__(self, ask: Ask, api_key: str | None) -> None:
        self.ask = ask
        self._api_key = api_key
        self.steps: list[str] = ["acquire"]
        self.seen: tuple[SeenLimit, ...] = ()
        self.end: CallEnd | None = None
        self.kept_seconds: float | None = None
        self.over = asyncio.Event()

    @property
    def api_key(self) -> str | None:
        return self._api_key

    async def sending(self) -> None:
        self.steps.append("sending")

    def learn(self, seen: Sequence[SeenLimit]) -> None:
        self.steps.append("learn")
        self.seen = tuple(seen)

    def keep(self, seconds: float) -> None:
        self.kept_seconds = seconds

    async def settle(self, end: CallEnd) -> None:
        await asyncio.sleep(0)
        self.steps.append("settle")
        self.end = end
        self.over.set()

    async def release(self) -> None:
        self.steps.append("release")
        self.over.set()


class MemoryPermits:
    """Args: the key to hand out, if any. Set `refusal` to have every call refused with it."""

    def __init__(self, api_key: str | None = None) -> None:
        self.api_key = api_key
        self.granted: list[GrantedPermit] = []
        self.refusal: TidegateError | None = None
        self.refused = 0

    async def acquire(self, ask: Ask) -> GrantedPermit:
        await asyncio.sleep(0)
        if self.refusal is not None:
            self.refused += 1
            raise self.refusal
        permit = GrantedPermit(ask, self.api_key)
        self.granted.append(permit)
        return permit

    @property
    def only(self) -> GrantedPermit:
        """The one permit there was; it is over."""
        assert len(self.granted) == 1, f"{len(self.granted)} permits"
        return self.granted[0]
