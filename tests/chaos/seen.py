"""Everything that is known of a run when it is over: what the judge judges by."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.faults import Journal
from chaos.ledgers import Clients, Processes
from chaos.plan import Plan
from tidegate.testing.checker import Limits, Note, Record


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything there is to judge a run by. Moments are seconds since the epoch."""

    plan: Plan
    clients: Clients
    notes: tuple[Note, ...]
    record: Record
    limits: dict[str, Limits]
    journal: Journal
    processes: Processes
    began_at: float
    calm_at: float
    """When the last fault was over."""
    settled_after: float | None
    """Seconds from then until every task was final; None: never."""
    open_then: int
    """Tasks that were open at that moment."""
    ended_at: float
    left_processes: tuple[str, ...]
    left_scratch: tuple[str, ...]
    faults_in_store: tuple[str, ...]
    longest_drain: float
    """Seconds that the last stop took."""
