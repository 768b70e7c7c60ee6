"""What processes have used, from Linux's `/proc`."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the pids of a process's children."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


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


def peak_mib(pid: int | str = "self") -> float:
    """Return the most memory a process has ever held (VmHWM), in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status names no VmHWM")


class Noise:
    """Mean number of cores that other processes kept busy since this was made.

    Above 0.3 or so, rates are lower bounds; CPU seconds and ratios hold longer.
    """

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._busy, self._own = _machine_busy_seconds(), _own_seconds()

    def cores(self) -> float:
        """Return it up to now."""
        others = (_machine_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        return max(0.0, others / (time.monotonic() - self._began_at))


def _machine_busy_seconds() -> float:
    user, nice, system, _idle, _iowait, irq, softirq = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / _TICKS_PER_SECOND


def _own_seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
