"""Orphaned children are reaped, and children of asyncio are left to asyncio."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from worker_support import came, state_of

from tidegate.worker.supervisor.zombie_reaper import ZombieReaper

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not hasattr(os, "waitid"), reason="this system has no waitid"),
]


def forked() -> int:
    """Return a child that ends at once and was not started by asyncio."""
    pid = os.posix_spawn("/bin/true", ["true"], os.environ)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


async def test_an_adopted_zombie_is_reaped_and_our_own_child_is_left() -> None:
    orphan, own = forked(), forked()
    ZombieReaper(lambda: {own}).reap()
    if state_of(orphan):  # our child hides it until its waiter has reaped that child
        os.waitpid(own, 0)
        ZombieReaper(lambda: {own}).reap()
    else:
        assert state_of(own) == "Z"
        os.waitpid(own, 0)
    assert state_of(orphan) == ""


async def test_our_own_zombie_does_not_block_reaping_for_long() -> None:
    own, orphan = forked(), forked()
    ZombieReaper(lambda: {own}).reap()
    os.waitpid(own, 0)
    await came(lambda: not state_of(orphan), "the other is reaped a moment later", within=5)


async def test_nothing_is_reaped_while_a_process_is_being_started() -> None:
    zombies = ZombieReaper(lambda: ())
    with zombies.paused():
        child = forked()
        zombies.reap()
        assert state_of(child) == "Z"
    await came(lambda: not state_of(child), "it is reaped afterwards", within=5)


async def test_asyncio_gets_the_exit_codes_of_its_own_children() -> None:
    running: set[int] = set()
    zombies = ZombieReaper(lambda: running)
    for code in range(20):
        with zombies.paused():
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-S", "-c", f"raise SystemExit({code})"
            )
            running.add(child.pid)
        while child.returncode is None:
            zombies.reap()
            await asyncio.sleep(0.001)
        assert await child.wait() == code
        running.clear()


async def test_without_any_child_there_is_nothing_to_do() -> None:
    ZombieReaper(lambda: ()).reap()
