"""A store seen through bad weather: the real one, with faults before, in and after its transactions.

Errors are raised inside the real transaction, as SQLite would raise them, so that the store's own way of
undoing and naming them is what the engine meets.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import apsw

from tidegate.errors import StoreUnavailableError, TidegateError
from tidegate.store.protocol import Store
from tidegate.store.sqlite.inline import InlineRunner
from tidegate.store.sqlite.job import Look, Mode, T, Work
from tidegate.store.sqlite.store import SqliteStore
from tidegate.testing.simulation.breakage import CALLS
from tidegate.testing.simulation.journal import Journal
from tidegate.testing.simulation.plan import FaultKind

_QUIET = frozenset({"add_worker", "beat", "lost_claims", "promote", "checkpoint", "begin_pass"})
"""Methods whose commits tell nothing of any one task, nor of a worker's end."""


@dataclass(slots=True)
class Weather:
    """How the store is for one machine, or for all. Chances are per call."""

    away_until: float = 0.0
    """Virtual moment before which every call fails."""
    locked_until: float = 0.0
    """Virtual moment before which nobody can write."""
    stormy_until: float = 0.0
    errors: float = 0.0
    lost_answers: float = 0.0
    is_severed: bool = False
    """For good: the run is over, and whoever is left has no store to speak to."""


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    error: str
    """What goes wrong inside the transaction; empty for nothing."""
    is_locked: bool
    """Whether it may read at most."""


class _FaultyRunner(InlineRunner):
    """Does the work, or fails at it as SQLite does, and tells the journal what was committed."""

    def __init__(self, path: Path, machine: str, journal: Journal) -> None:
        super().__init__(path)
        self.call: _Call | None = None
        self._machine = machine
        self._journal = journal

    async def run(self, work: Work[T], mode: Mode = Mode.READ, *, look: Look[T] | None = None) -> T:
        call, self.call = self.call, None
        if call is None:
            return await super().run(work, mode, look=look)

        def told(db: apsw.Connection) -> T:
            if call.is_locked and mode is Mode.WRITE:
                raise apsw.BusyError("BusyError: database is locked")
            if call.error == "busy":
                self._journal.hiccup(self._machine, call.method, "busy")
                raise apsw.BusyError("BusyError: database is locked")
            answer = work(db)
            if call.error == "full":
                self._journal.hiccup(self._machine, call.method, "disk full")
                raise apsw.FullError("FullError: database or disk is full")
            if call.error == "disk":
                self._journal.hiccup(self._machine, call.method, "disk error")
                raise apsw.IOError("IOError: disk I/O error")
            if call.method not in _QUIET and mode is Mode.WRITE:
                self._journal.committed(self._machine, call.method, call.arguments, call.options, answer)
            return answer

        return await super().run(told, mode, look=look)


class FaultyStore:
    """One process's store. Every method of the contract goes through `_call`.

    Args:
        path: The database file all share.
        clock: This process's store clock.
        machine: Whose store it is.
        weathers: This machine's and everyone's.
        drizzle: Chance of each kind of error in any call, by kind.
        rng: For faults and delays.
        journal: Told of every commit.
        heard: Told each answer that reached the process.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float],
        machine: str,
        weathers: tuple[Weather, Weather],
        drizzle: Weather,
        rng: random.Random,
        journal: Journal,
        heard: Callable[[str, Any], None] = lambda method, answer: None,
    ) -> None:
        self._runner = _FaultyRunner(path, machine, journal)
        self._store = SqliteStore(path, runner=self._runner, clock=clock)
        self._machine = machine
        self._weathers = weathers
        self._drizzle = drizzle
        self._rng = rng
        self._journal = journal
        self._heard = heard
        self._late: set[asyncio.Task[None]] = set()

    def as_store(self) -> Store:
        """Return it by the name of the contract."""
        return cast("Store", self)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if not callable(getattr(SqliteStore, method, None)):
            raise AttributeError(method)

        def call(*arguments: Any, **options: Any) -> Awaitable[Any]:
            return self._call(method, arguments, options)

        return call

    async def now(self) -> float:
        """Return the store's clock."""
        return await self._store.now()

    async def close(self) -> None:
        """Let go of the file."""
        await self._store.close()

    async def changed(self, timeout_seconds: float) -> None:
        """Pass on a hint; some get lost, some come for nothing. It may fail when the store goes away."""
        dice = self._rng.random()
        if dice < 0.05:
            await asyncio.sleep(timeout_seconds)
        elif dice < 0.1:
            await asyncio.sleep(timeout_seconds * self._rng.random())
        else:
            await self._store.changed(timeout_seconds)
        if self._rng.random() < 0.5:
            self._demand_reachable()

    async def _call(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            await self._travel()
        except asyncio.CancelledError:
            # What was sent is done also when nobody waits for it any more.
            if self._rng.random() < 0.5 and not self._is_away():
                self._do_late(method, arguments, options)
            raise
        self._demand_reachable()
        if method == "add_worker":
            self._journal.workers[arguments[0].id] = self._machine
        answer = await self._work(method, arguments, options)
        if self._rng.random() < self._chance("lost_answers"):
            self._journal.hiccup(self._machine, method, "lost answer")
            raise _unreachable("the answer was lost")
        await self._travel()
        self._demand_reachable()
        self._heard(method, answer)
        return answer

    async def _work(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        error = ""
        if self._rng.random() < self._chance("errors"):
            error = self._rng.choice(("busy", "busy", "full", "disk"))
        is_locked = any(self._journal.now() < weather.locked_until for weather in self._weathers)
        if method in CALLS and self._journal.breakage is not None:
            self._journal.breakage.meet("store")
        self._runner.call = _Call(method, arguments, options, error, is_locked)
        return await getattr(self._store, method)(*arguments, **options)

    def _do_late(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Do at the next turn what was sent: after its caller has gone, before anything sent later."""
        self._journal.injected["late commit"] += 1
        late = _quietly(self._work(method, arguments, options))
        job = asyncio.get_running_loop().create_task(late, name=f"late {method}")
        self._late.add(job)
        job.add_done_callback(self._late.discard)

    async def _travel(self) -> None:
        """Take the time a call is under way: mostly none."""
        dice = self._rng.random()
        if dice > 0.75:
            await asyncio.sleep(self._rng.expovariate(200) if dice < 0.99 else self._rng.random())

    def _demand_reachable(self) -> None:
        if self._is_away():
            raise _unreachable("it is away")

    def _is_away(self) -> bool:
        now = self._journal.now()
        return any(weather.is_severed or now < weather.away_until for weather in self._weathers)

    def _chance(self, kind: str) -> float:
        now = self._journal.now()
        chance: float = getattr(self._drizzle, kind)
        for weather in self._weathers:
            if now < weather.stormy_until:
                chance = max(chance, getattr(weather, kind))
        return chance


def drizzle_of(faults: frozenset[FaultKind], chance: float) -> Weather:
    """Return the errors that any call may meet."""
    return Weather(
        errors=chance if FaultKind.ERRORS in faults else 0.0,
        lost_answers=chance if FaultKind.LOST_ANSWERS in faults else 0.0,
    )


async def _quietly(work: Awaitable[object]) -> None:
    try:
        await work
    except TidegateError:
        return


def _unreachable(why: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"the store cannot be reached: {why}", fix="try again")
