"""The record of a finished run, which the checks use."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.faults import FaultLog
from chaos.plan import ChaosPlan
from chaos.process_logs import ClientLogs, StartedProcesses
from checker import FunctionNote, RunLimits, StoreSnapshot


@dataclass(frozen=True, slots=True)
class ChaosRecord:
    """The record of a run. Times are seconds since the epoch."""

    plan: ChaosPlan
    clients: ClientLogs
    notes: tuple[FunctionNote, ...]
    snapshot: StoreSnapshot
    limits: dict[str, RunLimits]
    fault_log: FaultLog
    processes: StartedProcesses
    began_at: float
    faults_ended_at: float
    """When the last fault was over."""
    final_after: float | None
    """Seconds from then until every task was final; None: never."""
    open_at_end: int
    """Tasks that were open at that time."""
    ended_at: float
    left_processes: tuple[str, ...]
    left_scratch: tuple[str, ...]
    integrity_errors: tuple[str, ...]
    longest_drain: float
    """Seconds that the last stop took."""
