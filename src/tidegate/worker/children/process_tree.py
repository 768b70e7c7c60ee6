"""Finds and kills a process and all its descendants, also those that moved into their own session.

Descendants are found through /proc on Linux; elsewhere only the process group is known.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

MARK = "TIDEGATE_MARK"
"""Environment variable that every descendant inherits: the marks of all its child and pool processes."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_HOST_NAMESPACE = 0xEFFFFFFC
"""The inode of the first process-id namespace: PROC_PID_INIT_INO in the kernel's proc_ns.h."""


def kill_tree(pid: int, mark: str) -> None:
    """Kill a process, its group, its descendants and every process with its mark, if they still exist."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for victim in {*descendants(pid), *find_marked(mark)}:
        _kill(victim)
    for late in find_marked(mark):  # processes that were started during the kills
        _kill(late)


def find_marked(mark: str) -> list[int]:
    """Return the processes that inherited this mark, except this one."""
    name, wanted = f"{MARK}=".encode(), mark.encode()
    found = []
    for pid in _all_pids():
        try:
            environment = (_PROC / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        if pid != os.getpid() and _has_mark(environment, name, wanted):
            found.append(pid)
    return found


def has_own_process_ids() -> bool:
    """Return whether this process is in a process-id namespace of its own, as in most containers."""
    try:
        return (_PROC / "self" / "ns" / "pid").stat().st_ino != _HOST_NAMESPACE
    except OSError:
        return False


def descendants(pid: int, *, other_sessions: bool = True) -> list[int]:
    """Return the living descendants of a process, without itself.

    Args:
        pid: The process.
        other_sessions: False leaves out children in other sessions, with all their descendants.
    """
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
                if not other_sessions:
                    children = [child for child in children if _session(child) == _session(pid)]
                found += children
                waiting += children
    return found


def excess(pid: int, limit: int, *, other_sessions: bool = True) -> int | None:
    """Return the bytes that a process and its descendants use if more than `limit`, else None.

    Shared pages, as of forked children, count once. Counting them needs a walk over page tables, so resident
    memory is checked first. A process that was just started may count twice: until it runs its own program,
    it is a copy of its parent. Check again before acting on the result.

    Args:
        pid: The process.
        limit: Bytes.
        other_sessions: False leaves out children in other sessions. The child processes of a pool process
            have such sessions, and their own limits.
    """
    pids = (pid, *descendants(pid, other_sessions=other_sessions))
    if sum(map(resident_bytes, pids)) <= limit:
        return None
    held = sum(map(_proportional, pids))
    return held if held > limit else None


def _session(pid: int) -> int:
    """Return the id of a process's session; 0 if it is gone."""
    try:
        return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[3])
    except (OSError, IndexError, ValueError):
        return 0


def resident_bytes(pid: int) -> int:
    """Return the memory of a process in RAM; 0 if it is gone."""
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def _proportional(pid: int) -> int:
    """Return the memory of a process, where a page shared by n processes counts as 1/n page."""
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text()
        return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    except (OSError, StopIteration, IndexError, ValueError):
        return resident_bytes(pid)


def _has_mark(environment: bytes, name: bytes, wanted: bytes) -> bool:
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
