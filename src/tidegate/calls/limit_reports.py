"""Collects the limits that response headers show and reports them to the store, for all processes.

Recording a limit never delays a call: it returns at once, from any thread. A background task writes to the
store at most once a second, and only changes that other processes must know.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus

from tidegate.calls.permits import PermitRequest
from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.errors import TidegateError
from tidegate.limits.learned_limits import (
    is_worth_sharing,
    merge_observed,
    next_call_at,
    windows_above_observed,
)
from tidegate.limits.values import GateRow, LearnedLimit, ObservedLimit
from tidegate.providers.limits import seen_limits
from tidegate.providers.packs import pack_for
from tidegate.providers.waits import Headers
from tidegate.store.protocol import Store
from tidegate.threads.bridge import running_or_bridge_loop

_log = logging.getLogger("tidegate.calls")

BETWEEN_WRITES_SECONDS = 1.0
OWN_OBSERVATION_SECONDS = 2.0
"""How many seconds after a response this process applies the limits itself; later the store does."""


@dataclass(frozen=True, slots=True)
class _Observation:
    """A limit that one response showed, with times by this process's clock."""

    seen: HeaderLimit
    sent_at: float
    seen_at: float
    needs: float
    jitter: float

    def by(self, now: float) -> ObservedLimit:
        return ObservedLimit(self.seen, now - self.sent_at, now - self.seen_at, self.needs, self.jitter)


class LimitReporter:
    """Keeps the latest observed limits of an upstream and its keys, and reports them to the store.

    All event loops and threads of the process may use it.

    Args:
        opened_store: Returns the open store, with the upstream declared in it.
        clock: Returns monotonic seconds.
        rng: The source of jitter.
    """

    def __init__(
        self,
        opened_store: Callable[[], Awaitable[Store]],
        *,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._opened_store = opened_store
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        """The lock for the fields that several threads use. The lock is never held across an await."""
        self._known: dict[str, tuple[LearnedLimit, ...]] = {}
        self._written: dict[tuple[str, Dimension], LearnedLimit] = {}
        self._unwritten: dict[tuple[str, Dimension], _Observation] = {}
        self._writes_in: asyncio.AbstractEventLoop | None = None
        """The event loop whose task writes to the store, or will soon; None if there is nothing to write."""
        self._writing: asyncio.Task[None] | None = None
        """The writing task, kept so that it is not garbage-collected."""
        self._write_at = 0.0
        self._warned: dict[tuple[str, str], tuple[float, int]] = {}

    def known(self, gate: str) -> tuple[LearnedLimit, ...]:
        """Return the limits that this process observed for a gate. Times are by its own clock."""
        with self._lock:
            return self._known.get(gate, ())

    def exhausted_seconds(self, gate: str) -> float:
        """Return for how many seconds an exhausted limit keeps the gate closed; 0 or less if no limit does.

        Only limits observed in the last `OWN_OBSERVATION_SECONDS` count: the store knows older ones.
        """
        now = self._clock()
        fresh = [limit for limit in self.known(gate) if now - limit.seen_at < OWN_OBSERVATION_SECONDS]
        return next_call_at(fresh, now) - now

    def observe(
        self, gate: str, seen: Sequence[HeaderLimit], *, sent_at: float, request: PermitRequest
    ) -> None:
        """Record the limits that a response showed for a gate. Returns at once."""
        now, needs, jitter = self._clock(), _call_costs(request), self._rng.random()
        observations = {
            each.dimension: _Observation(each, sent_at, now, needs[each.dimension], jitter) for each in seen
        }
        with self._lock:
            before = self._known.get(gate, ())
            after = merge_observed(before, [each.by(now) for each in observations.values()], now)
            self._known[gate] = after
            for limit in after:
                key = gate, limit.dimension
                is_new = not any(limit is old for old in before)
                if is_new and (key in self._unwritten or is_worth_sharing(self._written.get(key), limit)):
                    self._unwritten[key] = observations[limit.dimension]
                    self._written[key] = limit
        self._start_writing()

    def _start_writing(self) -> None:
        """Start the writing task unless one runs, in the running loop or else in the bridge's loop."""
        loop = running_or_bridge_loop()
        with self._lock:
            is_writing = self._writes_in is not None and not self._writes_in.is_closed()
            if is_writing or not self._unwritten:
                return
            self._writes_in = loop
        loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._writing = asyncio.create_task(self._write(), name="tidegate: keep learned limits")

    async def _write(self) -> None:
        try:
            store = await self._opened_store()
            while self._has_more():
                await asyncio.sleep(self._write_at - self._clock())
                self._write_at = self._clock() + BETWEEN_WRITES_SECONDS
                observations = self._take_unwritten()
                for gate in dict.fromkeys(gate for gate, _ in observations):
                    now = self._clock()
                    observed = [each.by(now) for (of, _), each in observations.items() if of == gate]
                    self._warn(await store.report_limits(gate, observed))
        except TidegateError as error:
            self._forget_written()
            _log.debug("limits from response headers were not stored: %s", error)
        except (Exception, asyncio.CancelledError):
            self._forget_written()
            raise

    def _has_more(self) -> bool:
        """Whether there are more limits to write.

        If there are none, the next observation starts a new writing task.
        """
        with self._lock:
            if not self._unwritten:
                self._writes_in = None
            return bool(self._unwritten)

    def _take_unwritten(self) -> dict[tuple[str, Dimension], _Observation]:
        with self._lock:
            observations, self._unwritten = self._unwritten, {}
            return observations

    def _forget_written(self) -> None:
        """Have every limit reported again when it is next observed, because the last report may be lost."""
        with self._lock:
            self._written.clear()
            self._writes_in = None

    def _warn(self, row: GateRow | None) -> None:
        """Log, once per change, each set limit that is above the provider's limit."""
        if row is None:
            return
        for window, limit in windows_above_observed(row.limits, row.gate.learned_limits):
            if self._warned.get((row.name, window.name)) == (limit, window.amount):
                continue
            self._warned[row.name, window.name] = limit, window.amount
            _log.warning(
                "upstream %s: its responses show that %s is %g, and the stored limit is %d: calls keep to "
                "the lower one. To lower it: tidegate upstreams set '%s' %s=%d",
                row.name,
                window.name,
                limit,
                window.amount,
                row.name,
                window.name,
                int(limit),
            )


def _call_costs(request: PermitRequest) -> Mapping[Dimension, float]:
    """Return how much of each limit one more call of this kind uses."""
    return {
        Dimension.REQUESTS: 1.0,
        Dimension.TOKENS: request.input_tokens + request.output_tokens,
        Dimension.INPUT_TOKENS: request.input_tokens,
        Dimension.OUTPUT_TOKENS: request.output_tokens,
    }


def limits_of(headers: Headers, *, status: int | None, host: str, provider: str) -> tuple[HeaderLimit, ...]:
    """Return the limits that a response's headers show.

    The resets of a 429 are left out: they often mean a full limit. The wait of a 429 is handled as a failure
    instead.

    Args:
        headers: A mapping or pairs.
        status: The HTTP status; None means unknown and counts as a success.
        host: The host that sent the response; empty if unknown.
        provider: The provider whose header formats apply if the host is not a known one.
    """
    seen = seen_limits(headers, now=time.time(), pack=pack_for(host=host, provider=provider))
    if status != HTTPStatus.TOO_MANY_REQUESTS:
        return seen
    return tuple(replace(limit, reset_seconds=None) for limit in seen)
