"""Units of work on the database: in time, tried again where that helps, failing in the contract's words."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

from tidegate.store.postgres.address import Address
from tidegate.store.postgres.connecting import Connection
from tidegate.store.postgres.connections import LoopConnections
from tidegate.store.postgres.connections_by_loop import ConnectionsByLoop
from tidegate.store.postgres.errors import ErrorKind, error_kind, late, wrap
from tidegate.store.postgres.session import PostgresSession, commit_or_roll_back

T = TypeVar("T")
Work = Callable[[PostgresSession], Awaitable[T]]
Unit = Callable[[Connection, PostgresSession], Awaitable[T]]

BUSY_SECONDS = 30.0
_TRIES = 6
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a unit wants of its connection."""

    generic_plan: bool
    reads: bool
    beats: bool


class Database:
    """Does units of work for the loop that asks.

    Args:
        address: Where to.
        clock: The moment statements take for now; None: the server's clock.
        busy_seconds: How long a unit may take in all, waiting for a connection and tries again included.
    """

    def __init__(
        self,
        address: Address,
        *,
        clock: Callable[[], float] | None = None,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.address = address
        self.location = _place(address.dsn)
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._connections = ConnectionsByLoop(address)

    async def autocommit(
        self,
        work: Work[T],
        *,
        repeatable: bool = True,
        seconds: float | None = None,
        generic_plan: bool = False,
        beats: bool = False,
    ) -> T:
        """Do work that is one statement: its own transaction, without a word more on the wire.

        Args:
            work: Run again from its start where a failure is no fault of its own.
            repeatable: False: not run again once the connection was lost under it.
            seconds: How long it may take in all; None: as long as any unit.
            generic_plan: One plan serves all values, so the server plans once. See `LoopConnections.acquire`.
            beats: It is a beat, which has a connection that no other work takes.

        Raises:
            StoreUnavailableError, StoreBusyError: It could not be done.
        """
        return await self._in_time(
            _without_transaction(work), repeatable, seconds, generic_plan=generic_plan, beats=beats
        )

    async def read(self, work: Work[T], *, generic_plan: bool = False) -> T:
        """Do work that is one statement and changes nothing.

        Where the caller is cancelled, the statement may go on for a second: its connection is kept.

        Args:
            work: As for `autocommit`.
            generic_plan: As for `autocommit`.

        Raises:
            StoreUnavailableError, StoreBusyError: It could not be done.
        """
        return await self._in_time(_without_transaction(work), True, generic_plan=generic_plan, reads=True)

    async def transact(
        self,
        work: Work[T],
        *,
        repeatable: bool = True,
        snapshot: bool = False,
        seconds: float | None = None,
        generic_plan: bool = False,
    ) -> T:
        """Do work of several statements in one transaction.

        Args:
            work: As for `autocommit`.
            repeatable: As for `autocommit`.
            snapshot: Read only, and every statement sees the same moment. A cancel is met as by `read`.
            seconds: As for `autocommit`.
            generic_plan: As for `autocommit`.

        Raises:
            StoreUnavailableError, StoreBusyError: It could not be done.
        """
        return await self._in_time(
            _in_transaction(work, snapshot=snapshot),
            repeatable,
            seconds,
            generic_plan=generic_plan,
            reads=snapshot,
        )

    @asynccontextmanager
    async def waiting_for_names(self) -> AsyncIterator[None]:
        """Wait for a turn to do what may wait for another's transaction: others need connections meanwhile.

        Raises:
            StoreUnavailableError: None came in time.
        """
        turns = self._connections.for_this_loop().waiting_for_names
        try:
            async with asyncio.timeout(self._busy_seconds):
                await turns.acquire()
        except TimeoutError as error:
            raise late(self.location, self._busy_seconds) from error
        try:
            yield
        finally:
            turns.release()

    async def is_pooled(self) -> bool:
        """Whether a pooler in transaction mode is between us and the server.

        Raises:
            StoreUnavailableError: There is no way to tell.
        """
        await self.autocommit(_no_op)
        return bool(self._connections.for_this_loop().is_pooled)

    def narrow(self, most: int) -> None:
        """Use no more than so many connections in the running loop from now on."""
        self._connections.for_this_loop().narrow(most)

    def before_loop_ends(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do this when the running loop ends, while its connections can still be used."""
        self._connections.for_this_loop().before_end.append(act)

    async def close(self) -> None:
        """Part with all connections."""
        await self._connections.close()

    async def _in_time(
        self,
        unit: Unit[T],
        repeatable: bool,
        seconds: float | None = None,
        *,
        generic_plan: bool,
        reads: bool = False,
        beats: bool = False,
    ) -> T:
        most_seconds = seconds or self._busy_seconds
        connections = self._connections.for_this_loop()
        dropped_before = connections.dropped
        try:
            async with asyncio.timeout(most_seconds) as limit:
                return await self._with_retries(
                    connections, unit, repeatable, _Terms(generic_plan, reads, beats), limit
                )
        except TimeoutError as error:
            if not limit.expired():
                raise
            if connections.dropped != dropped_before:  # else it only waited for its turn
                connections.close_idle()
            raise late(self.location, most_seconds) from error

    async def _with_retries(
        self,
        connections: LoopConnections,
        unit: Unit[T],
        repeatable: bool,
        terms: _Terms,
        limit: asyncio.Timeout,
    ) -> T:
        for tries in range(1, _TRIES + 1):
            try:
                connection = await connections.acquire(
                    limit, generic_plan=terms.generic_plan, beats=terms.beats
                )
                doing = self._run_unit(connections, connection, unit, keep=terms.beats)
                return await (connections.outlive(doing, limit) if terms.reads else doing)
            except Exception as error:
                trouble = error_kind(error)
                again = trouble is ErrorKind.AGAIN or (
                    trouble is ErrorKind.LOST and repeatable and tries == 1
                )
                if not again or tries == _TRIES:
                    wrapped = wrap(error, self.location)
                    if wrapped is error:
                        raise
                    raise wrapped from error
            await asyncio.sleep(_pause(tries))
        raise AssertionError("the last try returns or raises")

    async def _run_unit(
        self, connections: LoopConnections, connection: Connection, unit: Unit[T], *, keep: bool
    ) -> T:
        """Do work on a taken connection, and give it back or drop it."""
        try:
            now = None if self._clock is None else self._clock()
            answer = await unit(connection, PostgresSession(connection, self.address.schema, now))
        except BaseException as error:
            is_sound = isinstance(error, Exception) and error_kind(error) is not ErrorKind.LOST
            if is_sound and not connection.is_in_transaction():
                connections.release(connection)
            else:
                connections.drop(connection)
            raise
        connections.release(connection, keep=keep)
        return answer


async def _no_op(_: PostgresSession) -> None:
    """Be given a connection, and ask nothing of it."""


def _without_transaction(work: Work[T]) -> Unit[T]:
    def unit(_: Connection, session: PostgresSession) -> Awaitable[T]:
        return work(session)

    return unit


def _in_transaction(work: Work[T], *, snapshot: bool) -> Unit[T]:
    async def unit(connection: Connection, session: PostgresSession) -> T:
        isolation = "repeatable_read" if snapshot else None
        async with commit_or_roll_back(connection.transaction(isolation=isolation, readonly=snapshot)):
            return await work(session)

    return unit


def _pause(tries: int) -> float:
    """Return seconds between two tries: doubled each time, with full jitter."""
    return random.uniform(0.0, min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**tries))


def _place(dsn: str) -> str:
    """Return server and database for people, without credentials."""
    parts = urlsplit(dsn)
    words = dict(parse_qsl(parts.query))
    host = parts.netloc.rpartition("@")[2] or words.get("host") or os.environ.get("PGHOST") or "localhost"
    database = parts.path.removeprefix("/") or words.get("dbname") or os.environ.get("PGDATABASE")
    return f"{host}/{database}" if database else host
