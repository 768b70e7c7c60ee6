"""Connections: a fixed small number for each event loop, made when they are first needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import asyncpg

from tidegate.store.postgres.address import Address
from tidegate.store.postgres.keepalive import keep_alive
from tidegate.store.postgres.pooled import PooledConnection
from tidegate.store.postgres.statements import load
from tidegate.store.postgres.wrap import late

_SETTLE = load("connect")["settle"]

CONNECT_SECONDS = 10.0
_SILENCE = "15s"
_FAREWELL_SECONDS = 5.0
_STATEMENTS = 200
"""Prepared statements kept on a direct connection."""
STEADY = "DISCARD PLANS; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off"
_USUAL = "DISCARD PLANS; RESET plan_cache_mode; RESET enable_seqscan; RESET jit"
"""Plans of the other kind are not kept on: a change of settings alone would leave them."""

Link: TypeAlias = Any
"""An `asyncpg.Connection`; asyncpg brings no types."""


class Links:
    """The connections of one event loop.

    Args:
        address: Where to.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._pooler = address.pooler
        self._room = asyncio.Semaphore(address.connections)
        self.settling = asyncio.Semaphore(max(1, address.connections // 2))
        """For work that may wait for a name which a caller's own, still open transaction holds: however much
        of it there is, it leaves connections to all else."""
        self._free: list[Link] = []
        self._all: set[Link] = set()
        self._making = 0
        self._steady: set[Link] = set()
        """Those whose server plans a statement once, whatever its values and however full the tables are just
        then, and never to read a whole table."""
        self.dropped = 0
        """Connections that were parted with because they were no longer to be trusted."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._last_act: AsyncGenerator[None] | None = None

    @property
    def is_pooled(self) -> bool | None:
        """Whether a pooler is in between; None: not known before the first connection."""
        return self._pooler

    async def take(self, *, steady: bool = False) -> Link:
        """Return a connection that nobody uses; wait for one if all are in use.

        Args:
            steady: For statements that find their rows by an index whatever the values: planning them anew
                each time costs the server more than running them. One for each purpose is made where there
                is room, else one is changed over. Of no effect through a pooler, which keeps no plans.

        Raises:
            asyncpg.PostgresError, OSError, TimeoutError: None can be made.
        """
        if self._last_act is None:
            self._last_act = self._close_with_the_loop()
            await anext(self._last_act)
        await self._room.acquire()
        try:
            link = self._fitting(steady) or await self._new()
            try:
                await self._change_over(link, steady)
            except BaseException:
                self._forget(link)
                link.terminate()
                raise
        except BaseException:
            self._room.release()
            raise
        return link

    def _fitting(self, steady: bool) -> Link | None:
        """Return a free connection: of this kind, or of the other if there is no room for a new one."""
        for link in [link for link in self._free if link.is_closed()]:
            self._free.remove(link)
            self._forget(link)
        of_kind = [link for link in self._free if self._pooler or (link in self._steady) == steady]
        if not of_kind and len(self._all) + self._making >= self._address.connections:
            of_kind = self._free
        if not of_kind:
            return None
        link = of_kind[-1]
        self._free.remove(link)
        return link

    async def _new(self) -> Link:
        self._making += 1
        try:
            link = await self._connect()
        finally:
            self._making -= 1
        self._all.add(link)
        return link

    async def _change_over(self, link: Link, steady: bool) -> None:
        if self._pooler or (link in self._steady) == steady:
            return
        await link.execute(STEADY if steady else _USUAL)
        (self._steady.add if steady else self._steady.discard)(link)

    def _let_go(self, link: Link) -> None:
        self._forget(link)
        farewell = asyncio.create_task(_part(link), name="tidegate-postgres-farewell")
        self._leaving.add(farewell)
        farewell.add_done_callback(self._leaving.discard)

    def _forget(self, link: Link) -> None:
        self._all.discard(link)
        self._steady.discard(link)

    def give_back(self, link: Link) -> None:
        """Return a sound connection for others to take."""
        self._free.append(link)
        self._room.release()

    def drop(self, link: Link) -> None:
        """Part with a connection that is not to be trusted again; what it is doing is cancelled."""
        self.dropped += 1
        self._let_go(link)
        self._room.release()

    def part_with_idle(self) -> None:
        """Part with the connections nobody uses: where one has fallen silent, each of them may have."""
        while self._free:
            self._let_go(self._free.pop())

    async def close(self) -> None:
        """Part with all connections; the next `take` makes new ones."""
        self._free.clear()
        parting = [_part(link) for link in self._all]
        self._all.clear()
        self._steady.clear()
        await asyncio.gather(*parting, *self._leaving)

    def abandon(self) -> None:
        """Let go without a word: from another thread, or when the loop is over."""
        for link in self._all:
            with suppress(Exception):  # a closed loop refuses everything; its sockets go with it
                link.terminate()
        self._all.clear()
        self._steady.clear()
        self._free.clear()

    async def _close_with_the_loop(self) -> AsyncGenerator[None]:
        """Part with all connections when the loop ends: `asyncio.run` closes its generators at the end."""
        try:
            yield
        finally:
            await self.close()

    async def _connect(self) -> Link:
        if self._pooler is None:
            probe = await connect(self._address.dsn, pooler=True)
            try:
                self._pooler = await is_pooled(probe)
            finally:
                await _part(probe)
        link = await connect(self._address.dsn, pooler=self._pooler)
        if not self._pooler:
            try:
                await link.execute(_SETTLE, _SILENCE, timeout=CONNECT_SECONDS)
            except BaseException:
                link.terminate()
                raise
        return link


async def connect(dsn: str, *, pooler: bool) -> Link:
    """Make a connection.

    Args:
        dsn: Where to.
        pooler: Whether a pooler in transaction mode is in between.

    Raises:
        StoreUnavailableError: It took too long.
        asyncpg.PostgresError, OSError: It was refused.
    """
    try:
        link = await asyncpg.connect(
            dsn,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0 if pooler else _STATEMENTS,
            connection_class=PooledConnection if pooler else asyncpg.Connection,
            server_settings={"application_name": "tidegate"},
        )
    except TimeoutError as error:
        raise late("the database", CONNECT_SECONDS) from error
    keep_alive(link)
    return link


async def is_pooled(link: Link) -> bool:
    """Whether something between us and the server hands server connections out by turns.

    A pooler makes up the process id that it greets with.
    """
    pid: int = await link.fetchval("SELECT pg_backend_pid()")
    return bool(pid != link.get_server_pid())


async def _part(link: Link) -> None:
    try:
        await link.close(timeout=_FAREWELL_SECONDS)
    except Exception:
        link.terminate()


class LinksByLoop:
    """The connections of this process: a connection belongs to the event loop it was made in.

    Args:
        address: Where to.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._begin_anew()

    def mine(self) -> Links:
        """Return the running loop's connections."""
        if self._pid != os.getpid():
            self._begin_anew()
        loop = asyncio.get_running_loop()
        links = self._by_loop.get(loop)
        if links is None:
            links = self._by_loop[loop] = Links(self._address)
        return links

    async def close(self) -> None:
        """Part with all connections of all loops."""
        if self._pid != os.getpid():
            self._begin_anew()
            return
        here = asyncio.get_running_loop()
        for loop, links in list(self._by_loop.items()):
            if loop is here:
                await links.close()
            elif loop.is_running():
                with suppress(RuntimeError):  # it ended meanwhile
                    loop.call_soon_threadsafe(links.abandon)
            else:
                links.abandon()
            self._by_loop.pop(loop, None)

    def _begin_anew(self) -> None:
        # In a forked child the parent's connections are kept, unused: closing one here would end it there.
        self._kept: list[Any] = [*getattr(self, "_kept", []), getattr(self, "_by_loop", None)]
        self._pid = os.getpid()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Links] = WeakKeyDictionary()
