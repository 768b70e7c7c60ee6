"""Work that goes on after the response was sent, until the server ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from tidegate.errors import TidegateError

log = logging.getLogger("tidegate.web")


class BackgroundWork:
    """Runs coroutines of this server, each as a named task, and cancels them at its end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run some work. Its errors are logged."""
        task = asyncio.create_task(_logging_errors(work, name), name=f"tidegate {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel what runs, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _logging_errors(work: Coroutine[Any, Any, Any], name: str) -> None:
    try:
        await work
    except TidegateError as error:
        log.warning("%s ended early: %s", name, error)
    except Exception:  # nothing awaits it
        log.exception("%s failed", name)
