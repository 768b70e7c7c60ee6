"""Find and signal the processes of a run by a variable in their environment, never by a name.

A pid may belong to another process a moment later. So signals go through a pidfd, after a check that its
process is one of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

RUN = "TIDEGATE_CHAOS_RUN"
"""Environment variable of every process of a run: which run it belongs to."""
HOST = "TIDEGATE_CHAOS_HOST"
"""Of a worker command and all it starts, a client likewise: run and host."""

_PROC = Path("/proc")
_END_SECONDS = 10.0


def carrying(name: str, value: str) -> list[int]:
    """Return the living processes that carry a variable of that value. Zombies carry none."""
    return [pid for pid in _all_pids() if carries(pid, name, value)]


def carries(pid: int, name: str, value: str) -> bool:
    """Return whether a process carries a variable of that value."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{name}={value}".encode() in environment.split(b"\0")


def send(pids: Iterable[int], number: signal.Signals, name: str, value: str) -> frozenset[int]:
    """Send a signal to those of the processes that live and carry the variable; return them."""
    return frozenset(pid for pid in pids if _send(pid, number, name, value))


def is_alive(pid: int) -> bool:
    """Return whether a process runs or could; a zombie does not."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def describe(pid: int) -> str:
    """Return a description of a process: its id and command line."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = "gone meanwhile"
    return f"{pid}: {words.strip()[:200]}"


def stop_all(name: str, value: str, number: signal.Signals) -> frozenset[int]:
    """Send SIGSTOP or SIGCONT to all that carry the variable, also to those started meanwhile."""
    reached: frozenset[int] = frozenset()
    while fresh := set(carrying(name, value)) - reached:
        reached |= fresh
        send(fresh, number, name, value)
    return reached


async def end_all(name: str, value: str) -> list[int]:
    """Kill all processes with the variable until none is left; return those that did not end."""
    ends_at = time.monotonic() + _END_SECONDS
    while left := carrying(name, value):
        if time.monotonic() > ends_at:
            return left
        send(left, signal.SIGKILL, name, value)
        await asyncio.sleep(0.05)
    return []


def _send(pid: int, number: signal.Signals, name: str, value: str) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not carries(pid, name, value):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _all_pids() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]
    return []
