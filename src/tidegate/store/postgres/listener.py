"""Hearing hints: one connection that listens, looks after itself, and is made anew when it falls silent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tidegate.store.postgres.connecting import Link, connect, is_pooled, sever
from tidegate.store.postgres.statements import load

_IS_LISTENING = load("changed")["is_listening"]

PROBE_SECONDS = 10.0
"""Between two looks whether the server still knows of us: a connection can be dead for hours unseen."""
_ANSWER_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 10.0


class Listener:
    """Listens in one event loop until it is stopped.

    Args:
        dsn: A direct way to the server.
        channel: To listen on.
        heard: Called for each hint, and when listening begins again: something may have been missed.
        probe_seconds: Between two looks at the connection.
    """

    def __init__(
        self, dsn: str, channel: str, heard: Callable[[], None], *, probe_seconds: float = PROBE_SECONDS
    ) -> None:
        self._dsn = dsn
        self._channel = channel
        self._heard = heard
        self._probe_seconds = probe_seconds
        self._task: asyncio.Task[None] | None = None
        self._link: Link | None = None

    def start(self) -> None:
        """Begin to listen in the running loop."""
        self._task = asyncio.create_task(self._listen_for_ever(), name="tidegate-postgres-listener")

    @property
    def is_at_work(self) -> bool:
        """Whether it listens, tries to, or has found that it cannot; not once it or its loop was stopped."""
        return self._task is not None and not self._task.cancelled() and not self._task.get_loop().is_closed()

    def abandon_if_loop_is_closed(self) -> bool:
        """End the connection of a loop that was closed too soon; return whether it was."""
        if self._task is None or not self._task.get_loop().is_closed():
            return False
        if self._link is not None:
            sever(self._link)
        return True

    async def stop(self) -> None:
        """End it, in the loop that started it. Safe to repeat."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])

    async def _listen_for_ever(self) -> None:
        failures = 0
        while True:
            with suppress(Exception):  # the network, the server: whatever it is, there is polling
                link = self._link = await connect(self._dsn, pooler=True)
                try:
                    if await is_pooled(link):
                        return  # whoever is given the server connection next would get our hints
                    failures = 0
                    await self._listen(link)
                finally:
                    sever(link)
            failures += 1
            await asyncio.sleep(random.uniform(0.0, min(_LONGEST_PAUSE_SECONDS, 0.05 * 2**failures)))

    async def _listen(self, link: Link) -> None:
        """Listen until the connection is lost."""
        lost = asyncio.Event()
        link.add_termination_listener(lambda _: lost.set())

        def hear(*_: Any) -> None:
            self._heard()

        await link.add_listener(self._channel, hear)
        self._heard()
        while await self._is_sound(link):
            with suppress(TimeoutError):
                await asyncio.wait_for(lost.wait(), self._probe_seconds)
                return

    async def _is_sound(self, link: Link) -> bool:
        return await link.fetchval(_IS_LISTENING, self._channel, timeout=_ANSWER_SECONDS) is not None
