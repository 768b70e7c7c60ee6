"""Permits without a store: they are granted as configured, and record how each ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidegate.calls.permits import PermitRequest
from tidegate.domain.calls import CallResult
from tidegate.domain.usage import HeaderLimit
from tidegate.errors import TidegateError


class GrantedPermit:
    def __init__(self, request: PermitRequest, api_key: str | None) -> None:
        self.request = request
        self._api_key = api_key
        self.steps: list[str] = ["acquire"]
        self.seen: tuple[HeaderLimit, ...] = ()
        self.end: CallResult | None = None
        self.kept_seconds: float | None = None
        self.over = asyncio.Event()

    @property
    def api_key(self) -> str | None:
        return self._api_key

    async def mark_sending(self) -> None:
        self.steps.append("sending")

    def observe_limits(self, seen: Sequence[HeaderLimit]) -> None:
        self.steps.append("learn")
        self.seen = tuple(seen)

    def extend_lease(self, seconds: float) -> None:
        self.kept_seconds = seconds

    async def settle(self, end: CallResult) -> None:
        await asyncio.sleep(0)
        self.steps.append("settle")
        self.end = end
        self.over.set()

    async def release(self) -> None:
        self.steps.append("release")
        self.over.set()


class MemoryPermitSource:
    """Args: the key to hand out, if any. Set `refusal` to have every call refused with it."""

    def __init__(self, api_key: str | None = None) -> None:
        self.api_key = api_key
        self.granted: list[GrantedPermit] = []
        self.refusal: TidegateError | None = None
        self.refused = 0

    async def acquire(self, request: PermitRequest) -> GrantedPermit:
        await asyncio.sleep(0)
        if self.refusal is not None:
            self.refused += 1
            raise self.refusal
        permit = GrantedPermit(request, self.api_key)
        self.granted.append(permit)
        return permit

    @property
    def only(self) -> GrantedPermit:
        """The one permit there was; it is over."""
        assert len(self.granted) == 1, f"{len(self.granted)} permits"
        return self.granted[0]
