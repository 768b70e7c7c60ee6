"""The record of a finished run: its plan, its events and the contents of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checker import StoreSnapshot
from simulation.event_log import EventLog
from simulation.plan import SimulationPlan, SimulationSetup


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Everything that is known of a run when it is over."""

    plan: SimulationPlan
    setup: SimulationSetup
    event_log: EventLog
    snapshot: StoreSnapshot
    integrity_errors: tuple[str, ...]
    """What the integrity check found."""
    faults_ended_at: float
    """When the faults stopped, in virtual seconds."""
    final_after: float
    """Seconds from then until every task was final, or until patience ended."""
    final_bound: float
    """How long it may take."""
    waiting: tuple[str, ...]
    """Tasks whose results clients still waited for some time after the end."""
    deaths: Mapping[str, float]
    """When machines died, or their process ended by itself, in virtual seconds."""
    steps: int
    virtual_seconds: float
