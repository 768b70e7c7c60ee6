"""Runs one worker command from its start to its end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from tidegate.alerts.settings import AlertSettings
from tidegate.worker import signals
from tidegate.worker.logs import set_up_logging
from tidegate.worker.settings import Pool, Timings
from tidegate.worker.supervisor.supervisor import Supervisor


def run_worker(
    application: str,
    *,
    pools: Sequence[Pool] | None = None,
    timings: Timings | None = None,
    database_url: str | None = None,
    name: str | None = None,
    reload: bool = False,
    maintenance: bool = True,
    alerts: AlertSettings | None = None,
) -> int:
    """Run the workers of an application until SIGTERM or SIGINT; return the exit code.

    Args:
        application: `module:attribute`.
        pools: The pools to serve; None: the application's own.
        timings: The worker's timings; None: the application's own.
        database_url: The database; None: the application's own.
        name: A name for people, not an identity; the host's name by default.
        reload: Restart the pool processes when a source file under the current directory changes.
        maintenance: False leaves maintenance, and alerts, to other processes.
        alerts: The settings of alerts; None to evaluate none.

    Raises:
        ConfigError: The application cannot be loaded.
        StoreError: The store cannot be opened.
    """
    signals.reset_inherited_signals()
    set_up_logging(application)

    async def supervise() -> int:
        supervisor = Supervisor(
            application,
            pools=pools,
            timings=timings,
            database_url=database_url,
            name=name or socket.gethostname(),
            reload=reload,
            maintenance=maintenance,
            alerts=alerts,
        )
        return await supervisor.run()

    return asyncio.run(supervise())
