"""A provider with a quota, outages and a recovery that can collapse again; it writes down every call.

Small on purpose: one JSON POST a call, answered after a fixed latency. The server is that of the simulated
provider. Its CPU is not ours, so it runs in the process that measures.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidegate.testing.provider.listener import HOST, ProviderListener
from tidegate.testing.provider.messages import NoResponse, json_response

LEAST_TOKENS, MOST_TOKENS = 100, 8_000
MEAN_TOKENS = (MOST_TOKENS - LEAST_TOKENS) / math.log(MOST_TOKENS / LEAST_TOKENS)
TOKEN_SECONDS = 6.0
"""The bucket holds the tokens of this many seconds: a tenth of a minute."""


def tokens_of(task: int) -> int:
    """Return how many tokens the call of a task uses: log-uniform, the same in each run."""
    return round(LEAST_TOKENS * (MOST_TOKENS / LEAST_TOKENS) ** random.Random(task).random())


@dataclass(frozen=True)
class ProviderOutage:
    """An outage of the provider, and the time after it."""

    begins: float
    """Seconds from the first call."""
    seconds: float
    hangs: bool = False
    """Calls are read and not answered, instead of 503."""
    floor: float = 1.0
    """The part of the quota it can bear when it is back; 1: all of it at once."""
    ramp: float = 10.0
    """Seconds from there to all of it. Arrivals above 1.5 times of what it can bear collapse it again."""


@dataclass
class ReceivedCall:
    """One call as the provider saw it."""

    at: float
    """Seconds from the first call."""
    task: int
    status: int
    """0: never answered."""
    cost: float = 1.0
    """What it uses of the quota: 1, or its tokens in calls of the mean size."""
    in_flight: int = 0
    """The calls that it worked on then, this one included."""


@dataclass
class QuotaProvider:
    """Serves until the block ends.

    Args:
        quota: Calls a second; a bucket that holds one second's worth.
        latency: Seconds until a response.
        outage: The outage to simulate, if any.
        poisoned: Every n-th task gets a 400; 0 turns this off.
        faulty: Tasks that always get `fault`.
        fault: An HTTP status; 0 for no response.
        window: The seconds of a fixed window, whose whole quota returns at its end; None for an even refill.
        shows_limits: Whether each response shows the limit by the minute in headers, as OpenAI does.
        names_wait: Whether a 429 has a `Retry-After`.
        counts_tokens: Whether the quota is tokens: as many a second as `quota` calls of the mean size use.
        places: How many calls it works on at once; more of them wait. None: any number.
    """

    quota: float
    latency: float = 0.2
    outage: ProviderOutage | None = None
    poisoned: int = 0
    faulty: frozenset[int] = frozenset()
    fault: int = 500
    window: float | None = None
    shows_limits: bool = False
    names_wait: bool = True
    counts_tokens: bool = False
    places: int | None = None
    calls: list[ReceivedCall] = field(default_factory=list)
    collapses: list[float] = field(default_factory=list)
    url: str = ""
    began: float | None = None
    _level: float = 0.0
    _refilled: float = 0.0
    _back: float = 0.0
    """When it came back last; each collapse moves it."""
    _recent: deque[float] = field(default_factory=deque)
    _window: int = 0
    _in_flight: int = 0

    async def __aenter__(self) -> QuotaProvider:
        self._level = self.quota * (TOKEN_SECONDS if self.counts_tokens else 1.0)
        self._free_places = asyncio.Semaphore(self.places or 1_000_000)
        if self.outage is not None:
            self._back = self.outage.begins + self.outage.seconds
        self._listener = ProviderListener(self._serve)
        await self._listener.open(0)
        self.url = f"http://{HOST}:{self._listener.port}/call"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()

    def now(self) -> float:
        return 0.0 if self.began is None else time.monotonic() - self.began

    def is_away(self, at: float) -> bool:
        return self.outage is not None and self.outage.begins <= at < self._back

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            number = (await Request(scope, receive).json())["task"]
        except (KeyError, TypeError, ValueError):  # somebody who takes this port for another's
            response = Response(status_code=400)
        else:
            response = await self._answer(number)
        await response(scope, receive, send)

    async def _answer(self, task: int) -> Response:
        if self.began is None:
            self.began = time.monotonic()
        at = self.now()
        tokens = tokens_of(task)
        cost = tokens / MEAN_TOKENS if self.counts_tokens else 1.0
        call = ReceivedCall(at, task, 0, cost, self._in_flight + 1)
        self.calls.append(call)
        status, headers = self._response_status(at, task, cost)
        if status == 0:
            return NoResponse("hang")
        self._in_flight += 1
        try:
            async with self._free_places:
                await asyncio.sleep(self.latency if status in (200, 400) else self.latency / 10)
        finally:
            self._in_flight -= 1
        if status == 200 and self.is_away(self.now()) and self.outage is not None and not self.outage.hangs:
            status = 503  # the provider went down meanwhile
        call.status = status
        used = {
            "prompt_tokens": tokens // 4,
            "completion_tokens": tokens - tokens // 4,
            "total_tokens": tokens,
        }
        good = {"ok": True, "usage": used} if self.counts_tokens else {"ok": True}
        return json_response(status, good if status == 200 else {"error": {"message": "no"}}, headers)

    def _response_status(self, at: float, task: int, cost: float) -> tuple[int, dict[str, str]]:
        if self.outage is not None:
            self._collapse_if_overloaded(at, self.outage)
            if self.is_away(at):
                return (0 if self.outage.hangs and not self.collapses else 503), {}
        if self.poisoned and task % self.poisoned == 0:
            return 400, {}
        if task in self.faulty:
            return self.fault, {}
        self._refill(at)
        if self._level < cost:
            wait = self._next_window(at) - at if self.window else (cost - self._level) / self.quota
            return 429, ({"retry-after": f"{wait:.3f}"} if self.names_wait else {}) | self._headers(at)
        self._level -= cost
        return 200, self._headers(at)

    def _refill(self, at: float) -> None:
        if self.window is None:
            most = self.quota * (TOKEN_SECONDS if self.counts_tokens else 1.0)
            self._level = min(most, self._level + (at - self._refilled) * self.quota)
        elif int(at / self.window) > self._window or not self._refilled:
            self._window = int(at / self.window)
            self._level = self.quota * self.window
        self._refilled = at

    def _next_window(self, at: float) -> float:
        return (int(at / (self.window or 1.0)) + 1) * (self.window or 1.0)

    def _headers(self, at: float) -> dict[str, str]:
        """Return the limit by the minute, although the bucket holds a second's worth only."""
        if not self.shows_limits:
            return {}
        limit, remaining = round(60 * self.quota), int(self._level)
        reset = self._next_window(at) - at if self.window else (limit - remaining) / self.quota
        return {
            "x-ratelimit-limit-requests": f"{limit}",
            "x-ratelimit-remaining-requests": f"{remaining}",
            "x-ratelimit-reset-requests": f"{reset:.3f}s",
        }

    def _collapse_if_overloaded(self, at: float, outage: ProviderOutage) -> None:
        """Collapse again where arrivals of the last second are more than it can bear half over."""
        self._recent.append(at)
        while self._recent[0] < at - 1:
            self._recent.popleft()
        if outage.floor >= 1 or at < self._back:
            return
        part = min(1.0, outage.floor + (1 - outage.floor) * (at - self._back) / outage.ramp)
        arrived = sum(1 for moment in self._recent if moment >= self._back)
        if part < 1 and arrived > max(2.0, 1.5 * part * self.quota):
            self.collapses.append(at)
            self._back = at + outage.seconds / 2
