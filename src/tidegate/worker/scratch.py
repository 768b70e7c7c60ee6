"""Scratch directories: one a worker, one in it a run. Removed when the run ends, and after a kill."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

from tidegate.store.rows import WorkerRow

_WORKER_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def scratch_base() -> Path:
    """Return where all scratch directories are: `TIDEGATE_SCRATCH`, else this user's own temporary one."""
    given = os.environ.get("TIDEGATE_SCRATCH")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"tidegate-scratch-{os.getuid()}"


def scratch_root(worker_id: str) -> Path:
    """Return the scratch directory of one worker; it need not exist."""
    return scratch_base() / worker_id


def remove(worker_id: str) -> None:
    """Delete all that a worker left behind."""
    shutil.rmtree(scratch_root(worker_id), ignore_errors=True)


async def remove_for_lost_worker(worker: WorkerRow) -> None:
    """Delete what a worker whose lease ran out left behind, if it lived on this machine."""
    if worker.host == socket.gethostname():
        await asyncio.to_thread(remove, worker.id)


def remove_stale(living: set[str], min_age_seconds: float, now: float) -> int:
    """Delete what workers left behind that are not among `living`; return how many there were.

    What is not named like a worker is left alone: the base may be a directory that others use too.

    Args:
        living: Ids of workers that may still run, on whatever machine.
        min_age_seconds: Younger directories are left: their worker may not be registered yet.
        now: Seconds since the epoch.
    """
    base = scratch_base()
    if not base.is_dir():
        return 0
    left = [
        path
        for path in base.iterdir()
        if _WORKER_ID.fullmatch(path.name)
        and path.name not in living
        and path.is_dir()
        and now - path.stat().st_mtime > min_age_seconds
    ]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return len(left)
