"""The connections of one event loop: a small fixed number, opened when they are first needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tidegate.store.postgres.address import Address
from tidegate.store.postgres.connecting import (
    Connection,
    close_quietly,
    configure,
    connect,
    disconnect,
    finds_pooler,
    switch_plans,
)
from tidegate.store.postgres.errors import is_full
from tidegate.store.postgres.idle import Idle, answers
from tidegate.store.postgres.uncancelled import UncancelledTask
from tidegate.store.postgres.waiting import Waiting

T = TypeVar("T")

FULL_SECONDS = 5.0
"""Time until a new connection is tried again after the server had none left."""

OPEN: set[LoopConnections] = set()
"""All objects that may have connections. The connections stay here after their store is gone: until they are
closed, until their loop ends, or until a later loop finds their loop closed. A forked child keeps its
parent's objects, and does not touch them."""


class LoopConnections:
    """The connections of the running event loop.

    Args:
        address: The server.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._pooler = address.pooler
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._most = address.connections
        self._capacity = asyncio.Semaphore(self._most)
        self.waiting_for_names = asyncio.Semaphore(max(1, address.connections // 2))
        """Limits work that may wait for a name held by a caller's open transaction, so that other work has
        connections."""
        self._idle = Idle(self._close_in_background)
        self._all: set[Connection] = set()
        self._making = 0
        self._in_use = 0
        """Number of connections that are in use, being opened, or waited for."""
        self._generic_plan: set[Connection] = set()
        """Connections on which the server plans each statement once, independent of values and table sizes,
        and without sequential scans."""
        self.dropped = 0
        """Number of connections closed because they could no longer be used safely."""
        self._leaving: dict[asyncio.Task[None], Connection] = {}
        self._work: set[UncancelledTask[Any]] = set()
        """Strong references: an event loop does not keep its tasks alive."""
        self._late: set[UncancelledTask[Any]] = set()
        """Work that continues although its caller was cancelled."""
        self._full_until = 0.0
        """No new connection is tried before this moment, because the server had none left."""
        self._waiting = Waiting()
        self._kept: Connection | None = None
        """The connection that only heartbeats use. The connection counts as in use."""
        self._is_kept_in_use = False
        self._loop_finalizer: AsyncGenerator[None] | None = None
        self.before_end: list[Callable[[], Awaitable[None]]] = []
        """Called when the event loop ends, before the connections are closed."""

    @property
    def is_pooled(self) -> bool | None:
        """Whether a pooler is in between; None before the first connection."""
        return self._pooler

    @property
    def is_orphaned(self) -> bool:
        """Whether the loop was closed without closing its connections."""
        return self._pid == os.getpid() and self._loop.is_closed()

    @property
    def is_making(self) -> bool:
        """Whether a connection is being opened."""
        return self._making > 0

    async def acquire(
        self, limit: asyncio.Timeout, *, generic_plan: bool = False, beats: bool = False
    ) -> Connection:
        """Return a free connection; wait for one if all are in use.

        If the server has no connection left, any free connection is used, or the next one that is released.
        If the caller is cancelled while a connection is opened, that connection is kept for the next call.

        Args:
            limit: The caller's time limit.
            generic_plan: For statements that use an index for any values, where planning costs the server
                more than running. If there is room, a connection is opened for this purpose; otherwise one is
                switched over. No effect through a pooler, which keeps no plans.
            beats: Whether the call is a heartbeat. The connection is released with `keep=True` and then kept
                for the next heartbeat.

        Raises:
            asyncpg.PostgresError, OSError, TimeoutError: No connection can be opened.
        """
        if self._loop_finalizer is None:
            OPEN.add(self)
            self._loop_finalizer = self._close_with_the_loop()
            await anext(self._loop_finalizer)
        if beats and (kept := self._take_kept()) is not None:
            return kept
        await self._turn()
        connection = self._find_free(generic_plan)
        is_quiet = connection is not None and self._idle.remove(connection)
        if connection is not None and not is_quiet and self._is_of_kind(connection, generic_plan):
            return connection
        is_new = connection is None and self._reserved()
        making = self._begun(
            self._made(connection, generic_plan, is_quiet, is_new), "tidegate-postgres-connect"
        )
        try:
            await asyncio.wait([making])
        except asyncio.CancelledError:
            if limit.expired():
                self.dropped += not self._waiting
                if connection is not None:
                    making.end()
            self._let_outlive(making)
            making.add_done_callback(self._keep)
            raise
        return making.result().value()

    async def outlive(self, work: Coroutine[Any, Any, T], limit: asyncio.Timeout) -> T:
        """Run work that releases its connection itself, for up to a second after the caller was cancelled.

        Args:
            work: Must be harmless if no caller waits for it.
            limit: The caller's time limit. When this time is over, the work is cancelled at once.

        Raises:
            Exception: The error of the work.
        """
        working = self._begun(work, "tidegate-postgres-read")
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            if limit.expired():
                working.end()
                await asyncio.wait([working])
            else:
                self._let_outlive(working)
            raise
        return working.result().value()

    def _begun(self, work: Coroutine[Any, Any, T], name: str) -> UncancelledTask[T]:
        task = UncancelledTask(work, name=name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def _turn(self) -> None:
        self._in_use += 1
        try:
            await self._capacity.acquire()
        except BaseException:
            self._in_use -= 1
            raise

    def _end_turn(self) -> None:
        self._in_use -= 1
        self._capacity.release()

    def _let_outlive(self, work: UncancelledTask[Any]) -> None:
        self._late.add(work)
        work.add_done_callback(self._late.discard)
        work.cancel()

    def _keep(self, making: UncancelledTask[Connection]) -> None:
        """Keep a connection that was opened for a caller that no longer waits."""
        if not making.cancelled() and making.result().error is None:
            self.release(making.result().value())

    def _find_free(self, generic_plan: bool) -> Connection | None:
        """Return a free connection of this kind, or of the other kind if no new one can be opened."""
        for connection in self._idle.connections():
            if connection.is_closed():
                self._idle.remove(connection)
                self._forget(connection)
        free = self._idle.connections()
        of_kind = [connection for connection in free if self._is_of_kind(connection, generic_plan)]
        if not of_kind and not self._has_room():
            of_kind = free
        return of_kind[-1] if of_kind else None

    def _is_of_kind(self, connection: Connection, generic_plan: bool) -> bool:
        return bool(self._pooler) or (connection in self._generic_plan) == generic_plan

    async def _made(
        self, connection: Connection | None, generic_plan: bool, is_quiet: bool, is_new: bool
    ) -> Connection:
        """Return a connection of this kind: the given one (first checked if idle for long), or another."""
        try:
            if connection is None:
                connection, is_quiet = await self._another(is_new)
            while is_quiet and not await answers(connection):
                self.close_idle()
                self._forget(connection)
                disconnect(connection)
                connection, is_quiet = await self._another(self._reserved())
            if not self._is_of_kind(connection, generic_plan):
                await switch_plans(connection, generic=generic_plan)
                (self._generic_plan.add if generic_plan else self._generic_plan.discard)(connection)
        except BaseException:
            if connection is not None:
                self._forget(connection)
                disconnect(connection)
            self._waiting.give(None)
            self._end_turn()
            raise
        return connection

    async def _another(self, is_new: bool) -> tuple[Connection, bool]:
        """Return a new connection, or the next free one, and whether it was idle for long.

        Args:
            is_new: Whether a new connection was reserved.
        """
        while True:
            if is_new:
                try:
                    return await self._open_new(), False
                except Exception as error:
                    if not is_full(error) or not (self._all or self._making):
                        raise
                    self._full_until = self._loop.time() + FULL_SECONDS
            if free := self._idle.connections():
                return free[-1], self._idle.remove(free[-1])
            if self._kept is not None and not self._is_kept_in_use and self._all == {self._kept}:
                return self._shared(), True
            is_new = self._reserved()
            if not is_new and (connection := await self._waiting.given()) is not None:
                return connection, False

    def _has_room(self) -> bool:
        if (self._all or self._making) and self._loop.time() < self._full_until:
            return False
        return len(self._all) + self._making < self._most

    def _reserved(self) -> bool:
        """Reserve a new connection if there is room; return whether there is."""
        has_room = self._has_room()
        self._making += has_room
        return has_room

    def _take_kept(self) -> Connection | None:
        """Return the connection that is kept for heartbeats, if it is free and not closed."""
        if self._kept is None or self._is_kept_in_use:
            return None
        if self._kept.is_closed():
            self._forget(self._shared())
            return None
        self._is_kept_in_use = True
        self._in_use += 1
        return self._kept

    def _shared(self) -> Connection:
        """Release the connection that was kept for heartbeats to general use, and return it."""
        connection, self._kept, self._is_kept_in_use = self._kept, None, False
        self._capacity.release()
        return connection

    async def _open_new(self) -> Connection:
        try:
            if self._pooler is None:
                self._pooler = await finds_pooler(self._address.dsn)
            connection = await connect(self._address.dsn, pooler=self._pooler)
            self._all.add(connection)
        finally:
            self._making -= 1
        if not self._pooler:
            try:
                await configure(connection)
            except BaseException:
                self._forget(connection)
                disconnect(connection)
                raise
        return connection

    def _close_in_background(self, connection: Connection) -> None:
        self._forget(connection)
        if self._loop.is_closed():
            disconnect(connection)
            return
        farewell = asyncio.create_task(close_quietly(connection), name="tidegate-postgres-farewell")
        self._leaving[farewell] = connection
        farewell.add_done_callback(lambda ended: self._leaving.pop(ended, None))

    def _forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._generic_plan.discard(connection)
        if connection is self._kept:
            self._kept, self._is_kept_in_use = None, False
        self._waiting.give(None)

    def release(self, connection: Connection, *, keep: bool = False) -> None:
        """Release a connection for others to use.

        Args:
            connection: The connection.
            keep: Whether to keep the connection for the next heartbeat. The only connection is never kept.
        """
        if keep and (connection is self._kept or self._kept is None) and not self._is_wanted(connection):
            self._kept, self._is_kept_in_use = connection, False
            self._in_use -= 1
            return
        if connection is self._kept:
            self._kept, self._is_kept_in_use = None, False
        if len(self._all) > self._most:
            self._close_in_background(connection)
        elif not self._waiting.give(connection):
            self._idle.add(connection)
        self._end_turn()

    def _is_wanted(self, connection: Connection) -> bool:
        """Whether other calls need this connection: it is the only one, or only one is allowed."""
        return self._most == 1 or (bool(self._waiting) and self._all == {connection})

    def drop(self, connection: Connection) -> None:
        """Close a connection that can no longer be used safely; its statement is cancelled."""
        self.dropped += 1
        self._close_in_background(connection)
        self._end_turn()

    def narrow(self, most: int) -> None:
        """Use at most `most` connections from now on: other processes need them."""
        self._most = min(self._most, most)
        self.close_idle()

    def close_idle(self) -> None:
        """Close the idle connections: if one connection does not answer, the others may not either."""
        free = self._idle.connections()
        self._idle.clear()
        if self._kept is not None and not self._is_kept_in_use:
            free.append(self._shared())
        for connection in free:
            self._close_in_background(connection)

    async def close(self) -> None:
        """Close all connections; the next `acquire` opens new ones."""
        await self._part_with_all()
        if self._loop_finalizer is not None and not self._in_use:
            last_act, self._loop_finalizer = self._loop_finalizer, None
            await last_act.aclose()
            OPEN.discard(self)

    def abandon(self) -> None:
        """Close all connections abruptly: after the loop was closed, or from a callback in it."""
        for connection in (*self._all, *self._leaving.values()):
            disconnect(connection)
        for work in self._work.copy():
            work.abandon()
        self._all.clear()
        self._generic_plan.clear()
        self._idle.clear()
        self._leaving.clear()

    async def _part_with_all(self) -> None:
        while self._late:
            for late in self._late:
                late.cancel()
            await asyncio.wait(self._late)
            await asyncio.sleep(0)  # their callbacks release connections
        self._idle.clear()
        if self._kept is not None and not self._is_kept_in_use:
            self._shared()
        parting = [close_quietly(connection) for connection in self._all]
        self._all.clear()
        self._generic_plan.clear()
        await asyncio.gather(*parting, *self._leaving)

    async def _close_with_the_loop(self) -> AsyncGenerator[None]:
        """Close all connections when the loop ends: `asyncio.run` closes async generators at the end."""
        try:
            yield
        finally:
            if self._loop_finalizer is not None:
                for act in self.before_end:
                    await act()
            await self._part_with_all()
