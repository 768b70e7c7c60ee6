"""What answers show of limits, gathered in this process and kept in the store, for all to heed.

Hearing costs a call nothing: it returns at once, in whatever thread, and a task of its own writes, at most
once a second and only what others must know.
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

from tidegate._bridge import running_or_bridge_loop
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

_log = logging.getLogger("tidegate.calls")

BETWEEN_WRITES_SECONDS = 1.0
OWN_OBSERVATION_SECONDS = 2.0
"""So long after an answer this process goes by what it heard itself."""


@dataclass(frozen=True, slots=True)
class _Observation:
    """What one answer showed, by this process's clock."""

    seen: HeaderLimit
    sent_at: float
    seen_at: float
    needs: float
    jitter: float

    def by(self, now: float) -> ObservedLimit:
        return ObservedLimit(self.seen, now - self.sent_at, now - self.seen_at, self.needs, self.jitter)


class LimitReporter:
    """Knows what was last shown of the limits of an upstream and its keys, and tells the store.

    Used by all loops and threads of the process.

    Args:
        opened_store: Returns the store, open, in which the upstream is declared.
        clock: Monotonic seconds.
        rng: For jitter.
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
        """Held around what several threads fill and empty; never across an await."""
        self._known: dict[str, tuple[LearnedLimit, ...]] = {}
        self._written: dict[tuple[str, Dimension], LearnedLimit] = {}
        self._unwritten: dict[tuple[str, Dimension], _Observation] = {}
        self._writes_in: asyncio.AbstractEventLoop | None = None
        """The loop that writes the news, or is about to; None: there are none."""
        self._writing: asyncio.Task[None] | None = None
        """Referenced, so that it comes to its end."""
        self._write_at = 0.0
        self._warned: dict[tuple[str, str], tuple[float, int]] = {}

    def known(self, gate: str) -> tuple[LearnedLimit, ...]:
        """Return what this process heard of a gate's limits; moments are by its clock."""
        with self._lock:
            return self._known.get(gate, ())

    def exhausted_seconds(self, gate: str) -> float:
        """Return for how many seconds a gate lets no call through, since one of its limits is spent.

        Only what was heard just now: then the store knows it, and may know better.
        """
        now = self._clock()
        fresh = [limit for limit in self.known(gate) if now - limit.seen_at < OWN_OBSERVATION_SECONDS]
        return next_call_at(fresh, now) - now

    def observe(self, gate: str, seen: Sequence[HeaderLimit], *, sent_at: float, ask: PermitRequest) -> None:
        """Take note of what an answer showed of a gate's limits. Returns at once."""
        now, needs, jitter = self._clock(), _call_costs(ask), self._rng.random()
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
        """Have the news written, by one task at a time: of this loop, or the bridge's where none runs."""
        loop = running_or_bridge_loop()
        with self._lock:
            is_seen_to = self._writes_in is not None and not self._writes_in.is_closed()
            if is_seen_to or not self._unwritten:
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
            _log.debug("what headers showed of limits was not kept: %s", error)
        except (Exception, asyncio.CancelledError):
            self._forget_written()
            raise

    def _has_more(self) -> bool:
        """Whether there are news to write; if not, whoever hears the next has them written."""
        with self._lock:
            if not self._unwritten:
                self._writes_in = None
            return bool(self._unwritten)

    def _take_unwritten(self) -> dict[tuple[str, Dimension], _Observation]:
        with self._lock:
            observations, self._unwritten = self._unwritten, {}
            return observations

    def _forget_written(self) -> None:
        """Have the next answer told again: what was taken may not be kept."""
        with self._lock:
            self._written.clear()
            self._writes_in = None

    def _warn(self, row: GateRow | None) -> None:
        """Tell, once a change, where a given limit is above what the provider shows."""
        if row is None:
            return
        for window, limit in windows_above_observed(row.limits, row.gate.learned_limits):
            if self._warned.get((row.name, window.name)) == (limit, window.amount):
                continue
            self._warned[row.name, window.name] = limit, window.amount
            _log.warning(
                "upstream %s: its answers show that %s is %g; the stored limit of %d counts. "
                "To lower it: tidegate upstreams set '%s' %s=%d",
                row.name,
                window.name,
                limit,
                window.amount,
                row.name,
                window.name,
                int(limit),
            )


def _call_costs(ask: PermitRequest) -> Mapping[Dimension, float]:
    """Return what one more call like this takes of each limit."""
    return {
        Dimension.REQUESTS: 1.0,
        Dimension.TOKENS: ask.input_tokens + ask.output_tokens,
        Dimension.INPUT_TOKENS: ask.input_tokens,
        Dimension.OUTPUT_TOKENS: ask.output_tokens,
    }


def limits_of(headers: Headers, *, status: int | None, host: str, provider: str) -> tuple[HeaderLimit, ...]:
    """Return what the headers of an answer show of limits.

    A 429 names its wait, or the gate looks for itself: its resets, often of a full bucket, add nothing.

    Args:
        headers: A mapping or pairs.
        status: Of the answer; None: not known, and taken for a good one.
        host: Who answered; empty: not known.
        provider: Whose meanings to go by where the host tells nothing.
    """
    seen = seen_limits(headers, now=time.time(), pack=pack_for(host=host, provider=provider))
    if status != HTTPStatus.TOO_MANY_REQUESTS:
        return seen
    return tuple(replace(limit, reset_seconds=None) for limit in seen)
