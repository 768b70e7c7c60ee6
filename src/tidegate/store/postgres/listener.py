"""Receive hints: one connection that listens, checks itself, and is reopened when it fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tidegate.store.postgres.connecting import Connection, connect, disconnect, is_pooled
from tidegate.store.postgres.statements import load

_IS_LISTENING = load("wait_for_change")["is_listening"]

PROBE_SECONDS = 10.0
"""Interval between checks that the server still has the session: a dead connection can go unnoticed."""
_ANSWER_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 10.0


class Listener:
    """Listens in one event loop until it is stopped.

    Args:
        dsn: The server, without a pooler in between.
        channel: The channel to listen on.
        on_hint: Called for each hint, and when listening restarts, since a hint may have been missed.
        probe_seconds: Interval between checks of the connection.
    """

    def __init__(
        self, dsn: str, channel: str, on_hint: Callable[[], None], *, probe_seconds: float = PROBE_SECONDS
    ) -> None:
        self._dsn = dsn
        self._channel = channel
        self._on_hint = on_hint
        self._probe_seconds = probe_seconds
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Start to listen in the running loop."""
        self._task = asyncio.create_task(self._listen_for_ever(), name="tidegate-postgres-listener")

    @property
    def is_active(self) -> bool:
        """Whether the listener listens, tries to listen, or has found that it cannot.

        False once it was stopped.
        """
        return self._task is not None and not self._task.cancelled() and not self._task.get_loop().is_closed()

    def abandon_if_loop_is_closed(self) -> bool:
        """Close the connection if its loop was closed without `stop`; return whether the loop was."""
        if self._task is None or not self._task.get_loop().is_closed():
            return False
        if self._connection is not None:
            disconnect(self._connection)
        return True

    async def stop(self) -> None:
        """Stop listening. Call it in the loop that started it. Safe to repeat."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])

    async def _listen_for_ever(self) -> None:
        failures = 0
        while True:
            with suppress(Exception):  # after any error waiting processes still poll
                connection = self._connection = await connect(self._dsn, pooler=True)
                try:
                    if await is_pooled(connection):
                        return  # a pooler: the next user of the server connection would get our hints
                    failures = 0
                    await self._listen(connection)
                finally:
                    disconnect(connection)
            failures += 1
            await asyncio.sleep(random.uniform(0.0, min(_LONGEST_PAUSE_SECONDS, 0.05 * 2**failures)))

    async def _listen(self, connection: Connection) -> None:
        """Listen until the connection is lost."""
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())

        def on_notification(*_: Any) -> None:
            self._on_hint()

        await connection.add_listener(self._channel, on_notification)
        self._on_hint()
        while await self._is_healthy(connection):
            with suppress(TimeoutError):
                await asyncio.wait_for(lost.wait(), self._probe_seconds)
                return

    async def _is_healthy(self, connection: Connection) -> bool:
        return await connection.fetchval(_IS_LISTENING, self._channel, timeout=_ANSWER_SECONDS) is not None
