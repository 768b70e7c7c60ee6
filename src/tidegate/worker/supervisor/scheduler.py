"""The steward's duties in a process of their own: it needs a database and no application."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time

from tidegate._version import __version__
from tidegate.store.connect import absolute_url, open_store
from tidegate.store.protocol import Store
from tidegate.worker import scratch, signals
from tidegate.worker.logs import set_up_logging
from tidegate.worker.opening import open_in_time
from tidegate.worker.settings import Timings
from tidegate.worker.steward.steward import Steward
from tidegate.worker.supervisor.closing import close_or_leave
from tidegate.worker.supervisor.health import Health
from tidegate.worker.supervisor.presence import Presence
from tidegate.worker.supervisor.stopping import Stopping
from tidegate.worker.supervisor.zombies import Zombies

log = logging.getLogger("tidegate.supervisor")

HUNG_SECONDS = 120.0
"""Of a duty that neither ends nor fails."""


def run_scheduler(database_url: str, *, timings: Timings, name: str | None = None) -> int:
    """Keep house until SIGTERM or SIGINT; return the exit code.

    Args:
        database_url: Whose housekeeping.
        timings: Intervals and retention times.
        name: Shown to people; the host's name unless given.

    Raises:
        ConfigError: The URL or the schema is wrong.
        StoreError: The store cannot be opened.
    """
    signals.as_if_fresh()
    set_up_logging()

    async def keep_house() -> int:
        return await Scheduler(
            database_url, open_store(database_url), timings, name or socket.gethostname()
        ).run()

    return asyncio.run(keep_house())


class Scheduler:
    """One process that keeps house.

    Args:
        database_url: To be told to those who ask.
        store: The same, opened by `run`.
        timings: Intervals and retention times.
        name: Shown to people.
    """

    def __init__(self, database_url: str, store: Store, timings: Timings, name: str) -> None:
        self._database_url = database_url
        self._store = store
        self._timings = timings
        self._name = name
        rng = random.Random()
        self._stopping = Stopping(rng)
        self._steward = Steward(store, timings, rng=rng, clock=time.monotonic, lost=scratch.remove_of_lost)
        self._presence = Presence("scheduler", name, look=self._look, moving=self._is_moving)

    async def run(self) -> int:
        """Run until a signal; return the exit code."""
        Zombies(lambda: ()).watch()
        signals.end_with_the_shell(self._stopping.say)
        signals.listen(
            stop=self._stop, give_back=self._stop, renew=self._nothing_to_renew, passed_on=lambda number: None
        )
        if await self._stopping.unless_said(self._open()):
            self._steward.start()
            await self._presence.start()
            log.info("scheduler %s keeps house for %s", self._name, self._database_url)
            await self._stopping.wait()
            self._presence.stopping()
            await self._steward.stop()
            await self._presence.stop()
        await close_or_leave(self._store, within=self._timings.stop_grace, code=0)
        log.info("scheduler %s has stopped", self._name)
        return 0

    async def _open(self) -> bool:
        await open_in_time(self._store.open)
        return True

    def _stop(self, number: signal.Signals = signals.GIVE_BACK) -> None:
        log.info("%s: stopping", number.name)
        self._stopping.say()

    def _nothing_to_renew(self) -> None:
        log.info("SIGHUP: a scheduler has no code of yours; restart it for new settings")

    def _look(self) -> Health:
        problems = [] if self._is_moving() else ["a duty hangs"]
        if self._stopping.is_said:
            problems.append("it stops")
        return Health(
            kind="scheduler",
            name=self._name,
            pid=os.getpid(),
            database_url=absolute_url(self._database_url),
            version=__version__,
            status="stopping" if self._stopping.is_said else "keeping house",
            problems=problems,
        )

    def _is_moving(self) -> bool:
        return self._steward.busy_seconds() < HUNG_SECONDS
