"""A process and all it started, also what moved into a session of its own.

Linux reads /proc; elsewhere only the process group is known.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

MARK = "TIDEGATE_MARK"
"""Environment variable that every descendant inherits: the marks of all slots and pool processes above it."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


def kill_tree(pid: int, mark: str) -> None:
    """Kill a process, its group, its descendants and whatever carries its mark. Whoever is gone is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for victim in {*descendants(pid), *marked(mark)}:
        _kill(victim)
    for late in marked(mark):  # started while we were killing
        _kill(late)


def marked(mark: str) -> list[int]:
    """Return the processes that inherited this mark, ourselves left out."""
    name, wanted = f"{MARK}=".encode(), mark.encode()
    found = []
    for pid in _all_pids():
        try:
            environment = (_PROC / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        if pid != os.getpid() and _carries(environment, name, wanted):
            found.append(pid)
    return found


def descendants(pid: int) -> list[int]:
    """Return the living descendants of a process, itself left out."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            threads = list((_PROC / str(parent) / "task").iterdir())
        except OSError:
            continue
        for thread in threads:
            with contextlib.suppress(OSError, ValueError):
                children = [int(child) for child in (thread / "children").read_text().split()]
                found += children
                waiting += children
    return found


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants; shared pages count once each."""
    return sum(_resident(one) for one in (pid, *descendants(pid)))


def _resident(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def _carries(environment: bytes, name: bytes, wanted: bytes) -> bool:
    return any(
        entry.startswith(name) and wanted in entry[len(name) :].split(b"/")
        for entry in environment.split(b"\0")
    )


def _all_pids() -> Iterator[int]:
    try:
        yield from [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]
    except OSError:
        return


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
