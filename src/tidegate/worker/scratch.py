"""Scratch directories: one per worker, and in it one per run, removed when the run ends or is killed."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import socket
import tempfile
import time
from pathlib import Path

from tidegate.errors import TidegateError
from tidegate.store.protocol import Store
from tidegate.store.worker_rows import WorkerRow

log = logging.getLogger("tidegate.worker")

STALE_SECONDS = 86_400.0
"""Scratch directories of unknown workers are removed at this age."""
_WORKER_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def scratch_base() -> Path:
    """Return the parent of all scratch directories: `TIDEGATE_SCRATCH`, else a temporary one of this user."""
    given = os.environ.get("TIDEGATE_SCRATCH")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"tidegate-scratch-{os.getuid()}"


def scratch_root(worker_id: str) -> Path:
    """Return the scratch directory of one worker; it need not exist."""
    return scratch_base() / worker_id


def remove(worker_id: str) -> None:
    """Delete a worker's scratch directory."""
    shutil.rmtree(scratch_root(worker_id), ignore_errors=True)


async def remove_for_lost_worker(worker: WorkerRow) -> None:
    """Delete the scratch directory of a worker whose lease ran out, if it ran on this machine."""
    if worker.host == socket.gethostname():
        await asyncio.to_thread(remove, worker.id)


async def remove_unknown(store: Store) -> None:
    """Delete old scratch directories of workers that the store does not know any more. Logs errors."""
    try:
        living = {worker.id for worker in await store.list_workers()}
        await asyncio.to_thread(remove_stale, living, STALE_SECONDS, time.time())
    except (OSError, TidegateError) as error:
        log.warning("old scratch directories could not be removed: %s", error)


def remove_stale(living: set[str], min_age_seconds: float, now: float) -> int:
    """Delete the directories of workers that are not in `living`; return how many directories there were.

    Directories whose name is no worker id are left alone: others may use the base directory too.

    Args:
        living: Ids of workers that may still run, on any machine.
        min_age_seconds: Younger directories are kept: their worker may not be registered yet.
        now: Seconds since the epoch.
    """
    base = scratch_base()
    if not base.is_dir():
        return 0
    stale = [
        path
        for path in base.iterdir()
        if _WORKER_ID.fullmatch(path.name)
        and path.name not in living
        and path.is_dir()
        and now - path.stat().st_mtime > min_age_seconds
    ]
    for path in stale:
        shutil.rmtree(path, ignore_errors=True)
    return len(stale)
