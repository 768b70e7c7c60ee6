"""Connections: a fixed small number for each event loop, made when they are first needed."""

from __future__ import annotations

import asyncio
import gc
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
)
from tidegate.store.postgres.errors import is_full
from tidegate.store.postgres.idle import Idle, answers
from tidegate.store.postgres.uncancelled import UncancelledTask
from tidegate.store.postgres.waiting import Waiting

T = TypeVar("T")

GENERIC_PLANS = (
    "DISCARD PLANS; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off"
)
_CUSTOM_PLANS = "DISCARD PLANS; RESET plan_cache_mode; RESET enable_seqscan; RESET jit"
"""Plans of the other kind are not kept on: a change of settings alone would leave them."""

FULL_SECONDS = 5.0
"""After which a server that had no connection left is asked again for one."""

_open: set[LoopConnections] = set()
"""All that may have connections: kept when their store is gone, until they are closed, their loop ends, or
`close_orphaned` finds that the loop was closed. A forked child keeps its parent's and does not touch them."""


class LoopConnections:
    """The connections of the running event loop.

    Args:
        address: Where to.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._pooler = address.pooler
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._most = address.connections
        self._capacity = asyncio.Semaphore(self._most)
        self.waiting_for_names = asyncio.Semaphore(max(1, address.connections // 2))
        """For work that may wait for a name which a caller's own, still open transaction holds: however much
        of it there is, it leaves connections to all else."""
        self._idle = Idle(self._close_in_background)
        self._all: set[Connection] = set()
        self._making = 0
        self._in_use = 0
        """Connections that are taken, being made, or waited for."""
        self._generic_plan: set[Connection] = set()
        """Those whose server plans a statement once, whatever its values and however full the tables are just
        then, and never to read a whole table."""
        self.dropped = 0
        """Connections that were parted with because they were no longer to be trusted."""
        self._leaving: dict[asyncio.Task[None], Connection] = {}
        self._work: set[UncancelledTask[Any]] = set()
        """Kept here since a loop keeps no task alive by itself."""
        self._late: set[UncancelledTask[Any]] = set()
        """Work that goes on though its caller was cancelled."""
        self._full_until = 0.0
        """No new connection is tried until then, since the server had none left."""
        self._waiting = Waiting()
        self._kept: Connection | None = None
        """The one that only beats use. Its turn stays taken."""
        self._is_kept_in_use = False
        self._loop_finalizer: AsyncGenerator[None] | None = None
        self.before_end: list[Callable[[], Awaitable[None]]] = []
        """To be done when the loop ends, before the connections are closed."""

    @property
    def is_pooled(self) -> bool | None:
        """Whether a pooler is in between; None: not known before the first connection."""
        return self._pooler

    @property
    def is_orphaned(self) -> bool:
        """Whether the loop was closed without closing its connections."""
        return self._pid == os.getpid() and self._loop.is_closed()

    @property
    def is_making(self) -> bool:
        """Whether a connection is being made."""
        return self._making > 0

    async def acquire(
        self, limit: asyncio.Timeout, *, generic_plan: bool = False, beats: bool = False
    ) -> Connection:
        """Return a connection that nobody uses; wait for one if all are in use.

        Where the server has none left for a new one, any free one serves, or the next that is given back.
        Where the caller is cancelled while one is made, that one is kept for the next call.

        Args:
            limit: Of the caller.
            generic_plan: For statements that find their rows by an index for any values: planning them each
                time costs the server more than running them. One for each purpose is made where there
                is room, else one is changed over. Of no effect through a pooler, which keeps no plans.
            beats: For a beat. The connection is given back with `keep=True`; then it waits for the next beat.

        Raises:
            asyncpg.PostgresError, OSError, TimeoutError: None can be made.
        """
        if self._loop_finalizer is None:
            _open.add(self)
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
        """Do work that gives its connection back by itself; a cancelled caller leaves it a second for that.

        Args:
            work: What it does must do no harm when nobody waits for it.
            limit: Of the caller. Once it has expired, the work is cancelled at once.

        Raises:
            Exception: As the work does.
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
        """Keep a connection that was made for a caller who no longer waits for it."""
        if not making.cancelled() and making.result().error is None:
            self.release(making.result().value())

    def _find_free(self, generic_plan: bool) -> Connection | None:
        """Return a free connection: of this kind, or of the other if there is no room for a new one."""
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
        """Return a connection of this kind: the given one, asked first if it was quiet, or another."""
        try:
            if connection is None:
                connection, is_quiet = await self._another(is_new)
            while is_quiet and not await answers(connection):
                self.close_idle()
                self._forget(connection)
                disconnect(connection)
                connection, is_quiet = await self._another(self._reserved())
            if not self._is_of_kind(connection, generic_plan):
                await connection.execute(GENERIC_PLANS if generic_plan else _CUSTOM_PLANS)
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
        """Return a new connection, or one that is free or becomes free; and whether that was quiet for long.

        Args:
            is_new: A new one was reserved.
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
        """Reserve a new connection if there is room for one; return whether there is."""
        has_room = self._has_room()
        self._making += has_room
        return has_room

    def _take_kept(self) -> Connection | None:
        """Return the connection that is kept for beats, if it is free and sound."""
        if self._kept is None or self._is_kept_in_use:
            return None
        if self._kept.is_closed():
            self._forget(self._shared())
            return None
        self._is_kept_in_use = True
        self._in_use += 1
        return self._kept

    def _shared(self) -> Connection:
        """Return the connection that was kept for beats, and keep none; its turn is free again."""
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
        """Return a sound connection for others to take.

        Args:
            connection: The connection.
            keep: Only for the next beat, unless it is the only one.
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
        """Whether others need this connection: it is the only one, or may be no more than one."""
        return self._most == 1 or (bool(self._waiting) and self._all == {connection})

    def drop(self, connection: Connection) -> None:
        """Part with a connection that is not to be trusted again; what it is doing is cancelled."""
        self.dropped += 1
        self._close_in_background(connection)
        self._end_turn()

    def narrow(self, most: int) -> None:
        """Use no more than so many connections from now on: others need them."""
        self._most = min(self._most, most)
        self.close_idle()

    def close_idle(self) -> None:
        """Part with the connections nobody uses: where one has fallen silent, each of them may have."""
        free = self._idle.connections()
        self._idle.clear()
        if self._kept is not None and not self._is_kept_in_use:
            free.append(self._shared())
        for connection in free:
            self._close_in_background(connection)

    async def close(self) -> None:
        """Part with all connections; the next `take` makes new ones."""
        await self._part_with_all()
        if self._loop_finalizer is not None and not self._in_use:
            last_act, self._loop_finalizer = self._loop_finalizer, None
            await last_act.aclose()
            _open.discard(self)

    def abandon(self) -> None:
        """End all connections at once: when the loop is closed, or from a callback in it."""
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
            await asyncio.sleep(0)  # their callbacks give connections back
        self._idle.clear()
        if self._kept is not None and not self._is_kept_in_use:
            self._shared()
        parting = [close_quietly(connection) for connection in self._all]
        self._all.clear()
        self._generic_plan.clear()
        await asyncio.gather(*parting, *self._leaving)

    async def _close_with_the_loop(self) -> AsyncGenerator[None]:
        """Part with all connections when the loop ends: `asyncio.run` closes its generators at the end."""
        try:
            yield
        finally:
            if self._loop_finalizer is not None:
                for act in self.before_end:
                    await act()
            await self._part_with_all()


def close_orphaned() -> bool:
    """End the connections of closed loops, whatever store they served; return whether there were any."""
    closed = [connections for connections in _open.copy() if connections.is_orphaned]
    is_cut_short = any(connections.is_making for connections in closed)
    for connections in closed:
        connections.abandon()
        _open.discard(connections)
    if is_cut_short:
        gc.collect()  # nothing else reaches a connection that asyncpg had not handed out yet
    return bool(closed)
