"""Restarts every process of a worker with the current code.

For development, it detects changed source files.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from tidegate.errors import ConfigError
from tidegate.store.controls import RESTARTED
from tidegate.worker.supervisor.process_runner import ProcessRunner

log = logging.getLogger("tidegate.supervisor")

CHECK_SECONDS = 0.5
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "site-packages"}


class CodeReload:
    """Restarts every process, one after the other, if the current code can be loaded.

    Args:
        load: Loads the current code. Takes the grace time of processes that are not needed any more. Returns
            the runners to restart. Raises `ConfigError` or `OSError` if the old code must keep running.
        restart: Restarts the process of one runner. Takes the grace time and the reason.
        on_begin: Called when a restart begins.
    """

    def __init__(
        self,
        *,
        load: Callable[[float], Awaitable[list[ProcessRunner]]],
        restart: Callable[[ProcessRunner, float, str], Awaitable[None]],
        on_begin: Callable[[], None],
    ) -> None:
        self._load = load
        self._restart = restart
        self._on_begin = on_begin
        self.job: asyncio.Task[None] | None = None
        """The current or last restart; None before the first."""

    @property
    def is_running(self) -> bool:
        """Whether a restart is under way."""
        return self.job is not None and not self.job.done()

    def start(self, why: str, grace: float, on_end: Callable[[str], None] = lambda outcome: None) -> None:
        """Begin to restart. A restart that is under way is given up, and all processes are restarted again.

        Args:
            why: For logs.
            grace: Seconds that running tasks may continue; then they are released.
            on_end: Called with the outcome, also if the restart is given up.
        """
        log.info("%s: restarting, one process after the other", why)
        if self.job is not None:
            self.job.cancel()
        self.job = asyncio.create_task(self._run(why, grace, on_end), name="tidegate reload")

    async def _run(self, why: str, grace: float, on_end: Callable[[str], None]) -> None:
        self._on_begin()
        try:
            runners = await self._load(grace)
            for runner in runners:
                await self._restart(runner, grace, why)
        except (ConfigError, OSError) as error:
            log.error("%s: the new code cannot be loaded, the old code keeps running: %s", why, error)
            on_end(f"the new code cannot be loaded, the old code keeps running: {error}")
            return
        except asyncio.CancelledError:
            on_end("given up for another restart or the worker's end")
            raise
        log.info("%s: %s", why, RESTARTED)
        on_end(RESTARTED)


async def changed_sources(root: Path | None = None) -> AsyncIterator[Path]:
    """Yield a changed, new or deleted `.py` or `.toml` file under `root`, at most one per check."""
    root = root or Path.cwd()
    known = await asyncio.to_thread(_times, root)
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        now = await asyncio.to_thread(_times, root)
        changed = [path for path in now.keys() | known.keys() if now.get(path) != known.get(path)]
        known = now
        if changed:
            yield min(changed)


def _times(root: Path) -> dict[Path, int]:
    return {path: stat for path in _sources(root) if (stat := _modified(path)) is not None}


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")]
        yield from (Path(folder) / name for name in files if name.endswith((".py", ".toml")))


def _modified(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
