"""The ways in which the store becomes unreachable for everyone at once.

`locked`: another process holds the write lock, and waits in the queue of writers like ours.
`blocked`: a foreign program holds the write lock: a backup, a forgotten transaction in a shell.
`moved`: the directory of the store is removed, as with a detached volume, and comes back.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import apsw

from tidegate.store.sqlite.lock import FileLock

OUTAGE_KINDS = ("locked", "moved", "blocked")
_BUSY_MILLISECONDS = 10_000


@asynccontextmanager
async def make_unavailable(outage_kind: str, database: Path, env: Mapping[str, str]) -> AsyncIterator[None]:
    """Prevent all writes to the store for the block, without a notice to anyone.

    Args:
        outage_kind: One of `OUTAGE_KINDS`.
        database: The store's file.
        env: The environment of the process that holds the lock.
    """
    if outage_kind == "moved":
        aside = database.parent.with_name(database.parent.name + ".away")
        database.parent.rename(aside)
        database.parent.touch()  # no directory: otherwise a process that starts now would create a new, empty store there
        try:
            yield
        finally:
            database.parent.unlink()
            aside.rename(database.parent)
        return
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chaos.outage", outage_kind, str(database),
        env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        async with asyncio.timeout(_BUSY_MILLISECONDS / 1000):
            await holder.stdout.readline()
        yield
    finally:
        if holder.returncode is None:
            holder.send_signal(signal.SIGKILL)
        await holder.wait()


def hold_write_lock(outage_kind: str, database: Path) -> None:
    """Take the write lock, print a line, and keep the lock until killed."""
    with ExitStack() as stack:
        if outage_kind == "locked":
            stack.enter_context(FileLock(database.with_name(database.name + ".lock")).held())
        db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
        db.set_busy_timeout(_BUSY_MILLISECONDS)
        db.execute("BEGIN IMMEDIATE")
        print("held", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    hold_write_lock(sys.argv[1], Path(sys.argv[2]))
