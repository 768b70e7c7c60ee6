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

from simulation.event_log import EventLog
from simulation.plan import FaultKind
from simulation.user_code_faults import CALLS
from tidegate.errors import StoreUnavailableError, TidegateError
from tidegate.store.protocol import Store
from tidegate.store.sqlite.inline import InlineRunner
from tidegate.store.sqlite.job import Mode, Precheck, T, Work
from tidegate.store.sqlite.store import SqliteStore

_UNRECORDED_METHODS = frozenset(
    {
        "add_worker",
        "checkpoint",
        "extend_leases",
        "find_doubts",
        "find_lost_claims",
        "promote",
        "record_reaper_pass",
    }
)
"""Methods whose commits change no single task and end no worker."""


@dataclass(slots=True)
class StoreCondition:
    """How the store is for one machine, or for all. Chances are per call."""

    away_until: float = 0.0
    """Virtual time until which every call fails."""
    locked_until: float = 0.0
    """Virtual time until which every write fails."""
    burst_until: float = 0.0
    errors: float = 0.0
    lost_answers: float = 0.0
    is_severed: bool = False
    """Whether the run is over, so that every further call fails."""


@dataclass(frozen=True, slots=True)
class _StoreCall:
    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    error: str
    """The error inside the transaction; empty if there is none."""
    is_locked: bool
    """Whether it may read at most."""


class _FaultyRunner(InlineRunner):
    """Runs the transaction, or fails as SQLite does, and records the commit in the event log."""

    def __init__(self, path: Path, machine: str, event_log: EventLog) -> None:
        super().__init__(path)
        self.call: _StoreCall | None = None
        self._machine = machine
        self._event_log = event_log

    async def run(self, work: Work[T], mode: Mode = Mode.READ, *, precheck: Precheck[T] | None = None) -> T:
        call, self.call = self.call, None
        if call is None:
            return await super().run(work, mode, precheck=precheck)

        def work_or_fail(db: apsw.Connection) -> T:
            if call.is_locked and mode is Mode.WRITE:
                raise apsw.BusyError("BusyError: database is locked")
            if call.error == "busy":
                self._event_log.record_failed_call(self._machine, call.method, "busy")
                raise apsw.BusyError("BusyError: database is locked")
            answer = work(db)
            if call.error == "full":
                self._event_log.record_failed_call(self._machine, call.method, "disk full")
                raise apsw.FullError("FullError: database or disk is full")
            if call.error == "disk":
                self._event_log.record_failed_call(self._machine, call.method, "disk error")
                raise apsw.IOError("IOError: disk I/O error")
            if call.method not in _UNRECORDED_METHODS and mode is Mode.WRITE:
                self._event_log.record_commit(
                    self._machine, call.method, call.arguments, call.options, answer
                )
            return answer

        return await super().run(work_or_fail, mode, precheck=precheck)


class SimulatedStore:
    """The store of one process. Every method of the protocol goes through `_call`.

    Args:
        path: The database file, shared by all processes.
        clock: The store clock of this process.
        machine: The machine that uses this store.
        conditions: The conditions of this machine and of all machines.
        background_faults: Chance of an error in any call, by kind.
        rng: Source of faults and delays.
        event_log: Records every commit.
        on_answer: Called with each response that reaches the process.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float],
        machine: str,
        conditions: tuple[StoreCondition, StoreCondition],
        background_faults: StoreCondition,
        rng: random.Random,
        event_log: EventLog,
        on_answer: Callable[[str, Any], None] = lambda method, answer: None,
    ) -> None:
        self._runner = _FaultyRunner(path, machine, event_log)
        self._store = SqliteStore(path, runner=self._runner, clock=clock)
        self._machine = machine
        self._conditions = conditions
        self._background_faults = background_faults
        self._rng = rng
        self._event_log = event_log
        self._on_answer = on_answer
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
        """Close the file."""
        await self._store.close()

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Wait for a notification; some get lost, some come without a change. Fails if the store is unreachable."""
        draw = self._rng.random()
        if draw < 0.05:
            await asyncio.sleep(timeout_seconds)
        elif draw < 0.1:
            await asyncio.sleep(timeout_seconds * self._rng.random())
        else:
            await self._store.wait_for_change(timeout_seconds)
        if self._rng.random() < 0.5:
            self._require_reachable()

    async def _call(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            await self._network_delay()
        except asyncio.CancelledError:
            # A call that was sent is executed even if its caller does not wait any more.
            if self._rng.random() < 0.5 and not self._is_away():
                self._commit_late(method, arguments, options)
            raise
        self._require_reachable()
        if method == "add_worker":
            self._event_log.workers[arguments[0].id] = self._machine
        if method in CALLS and self._event_log.user_code_faults is not None:
            self._event_log.user_code_faults.maybe_fail("store")
        answer = await self._work(method, arguments, options)
        if self._rng.random() < self._chance_of("lost_answers"):
            self._event_log.record_failed_call(self._machine, method, "lost answer")
            raise _unreachable("the answer was lost")
        await self._network_delay()
        self._require_reachable()
        self._on_answer(method, answer)
        return answer

    async def _work(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        error = ""
        if self._rng.random() < self._chance_of("errors"):
            error = self._rng.choice(("busy", "busy", "full", "disk"))
        is_locked = any(
            self._event_log.now() < store_condition.locked_until for store_condition in self._conditions
        )
        self._runner.call = _StoreCall(method, arguments, options, error, is_locked)
        return await getattr(self._store, method)(*arguments, **options)

    def _commit_late(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Execute the sent call at the next turn of the loop, before any call that is sent later."""
        self._event_log.injected["late commit"] += 1
        late = _ignore_errors(self._work(method, arguments, options))
        job = asyncio.get_running_loop().create_task(late, name=f"late {method}")
        self._late.add(job)
        job.add_done_callback(self._late.discard)

    async def _network_delay(self) -> None:
        """Take the time a call is under way: mostly none."""
        draw = self._rng.random()
        if draw > 0.75:
            await asyncio.sleep(self._rng.expovariate(200) if draw < 0.99 else self._rng.random())

    def _require_reachable(self) -> None:
        if self._is_away():
            raise _unreachable("it is away")

    def _is_away(self) -> bool:
        now = self._event_log.now()
        return any(
            store_condition.is_severed or now < store_condition.away_until
            for store_condition in self._conditions
        )

    def _chance_of(self, kind: str) -> float:
        now = self._event_log.now()
        chance: float = getattr(self._background_faults, kind)
        for store_condition in self._conditions:
            if now < store_condition.burst_until:
                chance = max(chance, getattr(store_condition, kind))
        return chance


def background_faults_of(faults: frozenset[FaultKind], chance: float) -> StoreCondition:
    """Return the errors that any call may meet."""
    return StoreCondition(
        errors=chance if FaultKind.ERRORS in faults else 0.0,
        lost_answers=chance if FaultKind.LOST_ANSWERS in faults else 0.0,
    )


async def _ignore_errors(work: Awaitable[object]) -> None:
    try:
        await work
    except TidegateError:
        return


def _unreachable(why: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"the store cannot be reached: {why}", fix="try again")
