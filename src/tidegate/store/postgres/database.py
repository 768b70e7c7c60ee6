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
from tidegate.store.postgres.by_loop import LinksByLoop
from tidegate.store.postgres.connecting import Link
from tidegate.store.postgres.links import Links
from tidegate.store.postgres.session import PostgresSession, whole_or_undone
from tidegate.store.postgres.wrap import Trouble, late, trouble_of, wrap

T = TypeVar("T")
Work = Callable[[PostgresSession], Awaitable[T]]
Unit = Callable[[Link, PostgresSession], Awaitable[T]]

BUSY_SECONDS = 30.0
_TRIES = 6
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a unit wants of its connection."""

    steady: bool
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
        self.place = _place(address.dsn)
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._links = LinksByLoop(address)

    async def once(
        self,
        work: Work[T],
        *,
        repeatable: bool = True,
        seconds: float | None = None,
        steady: bool = False,
        beats: bool = False,
    ) -> T:
        """Do work that is one statement: its own transaction, without a word more on the wire.

        Args:
            work: Run again from its start where a failure is no fault of its own.
            repeatable: False: not run again once the connection was lost under it.
            seconds: How long it may take in all; None: as long as any unit.
            steady: Its plan need not depend on the values: the server makes it once. See `Links.take`.
            beats: It is a beat, which has a connection that no other work takes.

        Raises:
            StoreUnavailableError, StoreBusyError: It could not be done.
        """
        return await self._in_time(_plainly(work), repeatable, seconds, steady=steady, beats=beats)

    async def read(self, work: Work[T], *, steady: bool = False) -> T:
        """Do work that is one statement and changes nothing.

        Where the caller is cancelled, the statement may go on for a second: its connection is kept.

        Args:
            work: As for `once`.
            steady: As for `once`.

        Raises:
            StoreUnavailableError, StoreBusyError: It could not be done.
        """
        return await self._in_time(_plainly(work), True, steady=steady, reads=True)

    async def transact(
        self,
        work: Work[T],
        *,
        repeatable: bool = True,
        snapshot: bool = False,
        seconds: float | None = None,
        steady: bool = False,
    ) -> T:
        """Do work of several statements in one transaction.

        Args:
            work: As for `once`.
            repeatable: As for `once`.
            snapshot: Read only, and every statement sees the same moment. A cancel is met as by `read`.
            seconds: As for `once`.
            steady: As for `once`.

        Raises:
            StoreUnavailableError, StoreBusyError: It could not be done.
        """
        return await self._in_time(
            _in_transaction(work, snapshot=snapshot), repeatable, seconds, steady=steady, reads=snapshot
        )

    @asynccontextmanager
    async def settling(self) -> AsyncIterator[None]:
        """Wait for a turn to do what may wait for another's transaction: others need connections meanwhile.

        Raises:
            StoreUnavailableError: None came in time.
        """
        turns = self._links.mine().settling
        try:
            async with asyncio.timeout(self._busy_seconds):
                await turns.acquire()
        except TimeoutError as error:
            raise late(self.place, self._busy_seconds) from error
        try:
            yield
        finally:
            turns.release()

    async def is_pooled(self) -> bool:
        """Whether a pooler in transaction mode is between us and the server.

        Raises:
            StoreUnavailableError: There is no way to tell.
        """
        await self.once(_nothing)
        return bool(self._links.mine().is_pooled)

    def narrow(self, most: int) -> None:
        """Use no more than so many connections in the running loop from now on."""
        self._links.mine().narrow(most)

    def before_loop_ends(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do this when the running loop ends, while its connections can still be used."""
        self._links.mine().before_end.append(act)

    async def close(self) -> None:
        """Part with all connections."""
        await self._links.close()

    async def _in_time(
        self,
        unit: Unit[T],
        repeatable: bool,
        seconds: float | None = None,
        *,
        steady: bool,
        reads: bool = False,
        beats: bool = False,
    ) -> T:
        most_seconds = seconds or self._busy_seconds
        links = self._links.mine()
        dropped_before = links.dropped
        try:
            async with asyncio.timeout(most_seconds) as limit:
                return await self._tried(links, unit, repeatable, _Terms(steady, reads, beats), limit)
        except TimeoutError as error:
            if not limit.expired():
                raise
            if links.dropped != dropped_before:  # else it only waited for its turn
                links.part_with_idle()
            raise late(self.place, most_seconds) from error

    async def _tried(
        self,
        links: Links,
        unit: Unit[T],
        repeatable: bool,
        terms: _Terms,
        limit: asyncio.Timeout,
    ) -> T:
        for tries in range(1, _TRIES + 1):
            try:
                link = await links.take(limit, steady=terms.steady, beats=terms.beats)
                doing = self._done(links, link, unit, keep=terms.beats)
                return await (links.outlive(doing, limit) if terms.reads else doing)
            except Exception as error:
                trouble = trouble_of(error)
                again = trouble is Trouble.AGAIN or (trouble is Trouble.LOST and repeatable and tries == 1)
                if not again or tries == _TRIES:
                    wrapped = wrap(error, self.place)
                    if wrapped is error:
                        raise
                    raise wrapped from error
            await asyncio.sleep(_pause(tries))
        raise AssertionError("the last try returns or raises")

    async def _done(self, links: Links, link: Link, unit: Unit[T], *, keep: bool) -> T:
        """Do work on a taken connection, and give it back or drop it."""
        try:
            now = None if self._clock is None else self._clock()
            answer = await unit(link, PostgresSession(link, self.address.schema, now))
        except BaseException as error:
            is_sound = isinstance(error, Exception) and trouble_of(error) is not Trouble.LOST
            if is_sound and not link.is_in_transaction():
                links.give_back(link)
            else:
                links.drop(link)
            raise
        links.give_back(link, keep=keep)
        return answer


async def _nothing(_: PostgresSession) -> None:
    """Be given a connection, and ask nothing of it."""


def _plainly(work: Work[T]) -> Unit[T]:
    def unit(_: Link, session: PostgresSession) -> Awaitable[T]:
        return work(session)

    return unit


def _in_transaction(work: Work[T], *, snapshot: bool) -> Unit[T]:
    async def unit(link: Link, session: PostgresSession) -> T:
        isolation = "repeatable_read" if snapshot else None
        async with whole_or_undone(link.transaction(isolation=isolation, readonly=snapshot)):
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
