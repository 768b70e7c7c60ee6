"""How a map ended: the argument of its `on_complete` task function."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MapEnd:
    """The counts of a map at the moment when all its items were final. It holds no results."""

    map_id: str
    name: str
    function: str
    """The full name of the task function of its items."""
    tenant: str | None
    items: int
    succeeded: int
    dead: int
    cancelled: int
