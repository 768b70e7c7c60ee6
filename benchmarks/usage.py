"""What processes have used, from Linux's `/proc`."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the pids of a process's children."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def tree(pid: int) -> list[int]:
    """Return a process's pid and those of all its descendants, whichever threads started them."""
    pids = [pid]
    for each in pids:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            with suppress(OSError):
                pids += map(int, task.read_text().split())
    return pids


def command_line(pid: int) -> bytes:
    """Return a process's arguments, NUL between them; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time, user and system, that a process has used in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def tree_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants, with those that ended and were waited for."""
    ticks = 0
    for each in tree(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_SECOND


def tree_mib(pid: int, what: str = "VmHWM") -> float:
    """Return the memory of a process and its living descendants, in MiB: the sum of peaks, or of `what`.

    Args:
        pid: The process.
        what: A line of `/proc/PID/status`: VmHWM (the peak), VmRSS, RssAnon (without mapped files).
    """
    total = 0.0
    for each in tree(pid):
        with suppress(OSError, RuntimeError):
            total += _status_mib(each, what)
    return total


def peak_mib(pid: int | str = "self") -> float:
    """Return the most memory a process has ever held (VmHWM), in MiB."""
    return _status_mib(pid, "VmHWM")


def _status_mib(pid: int | str, what: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status names no {what}")


class BackgroundLoad:
    """Mean number of cores that processes not started by this one kept busy since this was made.

    Above 0.3 or so, rates are lower bounds; CPU seconds and ratios hold longer.
    """

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._busy, self._own = _machine_busy_seconds(), tree_cpu_seconds(os.getpid())

    def cores(self) -> float:
        """Return it up to now."""
        others = (_machine_busy_seconds() - self._busy) - (tree_cpu_seconds(os.getpid()) - self._own)
        return max(0.0, others / (time.monotonic() - self._began_at))


def _machine_busy_seconds() -> float:
    user, nice, system, _idle, _iowait, irq, softirq = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / _TICKS_PER_SECOND
