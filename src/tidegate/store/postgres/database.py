"""Run units of work on the database, with time limits and retries, and with the contract's errors."""

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
class _ConnectionOptions:
    """The kind of connection that one unit of work needs."""

    generic_plan: bool
    reads: bool
    beats: bool


class Database:
    """Runs units of work on the connections of the running event loop.

    Args:
        address: The server.
        clock: The clock for statements; None: the server's clock.
        busy_seconds: The longest time for one unit of work, including waits for a connection and retries.
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
        """Run work that is one statement, in its own implicit transaction.

        Args:
            work: The work. The work is retried from its start if it failed for an outside reason.
            repeatable: Whether to retry after the connection was lost during the work.
            seconds: How long the work may take in all; None: `busy_seconds`.
            generic_plan: Whether one plan fits all values, so that the server plans once. See
                `LoopConnections.acquire`.
            beats: Whether the work is a heartbeat, which has a connection that no other work uses.

        Raises:
            StoreUnavailableError, StoreBusyError: The work could not be done.
        """
        return await self._in_time(
            _without_transaction(work), repeatable, seconds, generic_plan=generic_plan, beats=beats
        )

    async def read(self, work: Work[T], *, generic_plan: bool = False) -> T:
        """Run work that is one statement and changes nothing.

        If the caller is cancelled, the statement may continue for a second, so that its connection is kept.

        Args:
            work: As for `autocommit`.
            generic_plan: As for `autocommit`.

        Raises:
            StoreUnavailableError, StoreBusyError: The work could not be done.
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
        """Run work of several statements in one transaction.

        Args:
            work: As for `autocommit`.
            repeatable: As for `autocommit`.
            snapshot: Whether the work only reads, and all its statements see one snapshot. A cancel is
                handled as by `read`.
            seconds: As for `autocommit`.
            generic_plan: As for `autocommit`.

        Raises:
            StoreUnavailableError, StoreBusyError: The work could not be done.
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
        """Wait for a turn to run work that may wait for another transaction.

        The turns are few, so that other work has connections.

        Raises:
            StoreUnavailableError: No turn came in time.
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
        """Return whether a pooler in transaction mode is between this process and the server.

        Raises:
            StoreUnavailableError: The server cannot be reached.
        """
        await self.autocommit(_no_op)
        return bool(self._connections.for_this_loop().is_pooled)

    def narrow(self, most: int) -> None:
        """Use at most `most` connections in the running loop from now on."""
        self._connections.for_this_loop().narrow(most)

    def before_loop_ends(self, act: Callable[[], Awaitable[None]]) -> None:
        """Call `act` when the running loop ends, while its connections can still be used."""
        self._connections.for_this_loop().before_end.append(act)

    async def close(self) -> None:
        """Close all connections."""
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
                    connections, unit, repeatable, _ConnectionOptions(generic_plan, reads, beats), limit
                )
        except TimeoutError as error:
            if not limit.expired():
                raise
            if connections.dropped != dropped_before:  # otherwise it only waited for its turn
                connections.close_idle()
            raise late(self.location, most_seconds) from error

    async def _with_retries(
        self,
        connections: LoopConnections,
        unit: Unit[T],
        repeatable: bool,
        options: _ConnectionOptions,
        limit: asyncio.Timeout,
    ) -> T:
        for tries in range(1, _TRIES + 1):
            try:
                connection = await connections.acquire(
                    limit, generic_plan=options.generic_plan, beats=options.beats
                )
                doing = self._run_unit(connections, connection, unit, keep=options.beats)
                return await (connections.outlive(doing, limit) if options.reads else doing)
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
        """Run work on an acquired connection, then release or drop it."""
        try:
            now = None if self._clock is None else self._clock()
            answer = await unit(
                connection, PostgresSession(connection, self.address.schema, now, self.location)
            )
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
    """Work that does nothing: running it only opens a connection."""


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
    """Return the seconds between two tries: doubled each time, with full jitter."""
    return random.uniform(0.0, min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**tries))


def _place(dsn: str) -> str:
    """Return the names of server and database, for messages, without credentials."""
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    host = parts.netloc.rpartition("@")[2] or query.get("host") or os.environ.get("PGHOST") or "localhost"
    database = parts.path.removeprefix("/") or query.get("dbname") or os.environ.get("PGDATABASE")
    return f"{host}/{database}" if database else host
