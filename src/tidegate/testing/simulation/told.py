"""What is known of a run when it is over: the plan, what was seen, what the store says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.testing.checker import Record
from tidegate.testing.simulation.journal import Journal
from tidegate.testing.simulation.plan import Plan, Scene


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that is known of a run when it is over."""

    plan: Plan
    scene: Scene
    journal: Journal
    record: Record
    faults_in_store: tuple[str, ...]
    """What the integrity check found."""
    calm_at: float
    """When the faults stopped, in virtual seconds."""
    settled_after: float
    """Seconds from then until every task was final, or until patience ended."""
    settle_bound: float
    """How long it may take."""
    waiting: tuple[str, ...]
    """Tasks whose results clients still waited for some time after the end."""
    deaths: Mapping[str, float]
    """When machines died, in virtual seconds; also those whose process ended by itself."""
    steps: int
    virtual_seconds: float
