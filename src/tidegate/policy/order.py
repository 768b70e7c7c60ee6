"""Which ready task goes first: shares between priorities, and what moves a task's rank.

Inside a channel tasks go by rank, the moment they became runnable plus or minus the seconds below, so
that everything ages by construction: a penalty delays a task by that much against newer ones, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.domain.spec import Priority

PENALTY_SECONDS = 60.0
"""Added to the rank for each charged attempt: work that fails makes room for work that may not."""

LIFT_SECONDS = 600.0
"""Taken off the rank of work already started and given back: it goes before what waited less than this."""

DEFAULT_SHARES: Mapping[Priority, float] = {Priority.NORMAL: 0.10, Priority.BULK: 0.10}
"""The part of all claims that each lower priority is sure of while it has something to do."""


class Portion(NamedTuple):
    """So many tasks of one priority."""

    priority: Priority
    tasks: int


def apportion(
    slots: int, reserved: Mapping[Priority, int], found: Callable[[Priority, int], int]
) -> list[Portion]:
    """Share the slots of one claim between the priorities.

    First each priority gets what is reserved for it, then the rest goes to the most urgent that has
    tasks. A priority whose tasks are not needed is never asked about.

    Args:
        slots: Tasks to take in all.
        reserved: Slots kept for a priority, as far as it has tasks.
        found: Tells how many tasks of a priority are ready, counting no further than the given number.

    Returns:
        Portions in the order they are to be taken; a priority may have two.
    """
    portions: list[Portion] = []
    taken = dict.fromkeys(Priority, 0)

    def take(priority: Priority, wanted: int) -> None:
        at_most = min(wanted, slots - sum(taken.values()))
        if at_most <= 0:
            return
        tasks = min(at_most, found(priority, taken[priority] + at_most) - taken[priority])
        if tasks > 0:
            taken[priority] += tasks
            portions.append(Portion(priority, tasks))

    for priority in Priority:
        take(priority, reserved.get(priority, 0))
    for priority in Priority:
        take(priority, slots)
    return portions


@dataclass(frozen=True, slots=True)
class Shares:
    """What each lower priority is owed, carried from claim to claim.

    A value: `after` returns the next one. Each claimed task adds a priority's share to its debt, a task
    of that priority pays one back. One that has fewer tasks than it is owed gathers no further debt.
    """

    shares: Mapping[Priority, float] = field(default_factory=lambda: DEFAULT_SHARES)
    owed: Mapping[Priority, float] = field(default_factory=dict)
    """Tasks, with fractions, by priority."""

    def reserved(self) -> dict[Priority, int]:
        """Return the whole slots owed, as `ClaimRequest.reserved` wants them."""
        whole = {priority: int(debt + _ROUNDING) for priority, debt in self.owed.items()}
        return {priority: slots for priority, slots in whole.items() if slots > 0}

    def after(self, claimed: Mapping[Priority, int], slots: int) -> Shares:
        """Return the shares after a claim made with `reserved()`.

        Args:
            claimed: Tasks it got, by priority.
            slots: Tasks it asked for; a claim that got fewer has left nobody waiting, so no debt stays.
        """
        total = sum(claimed.values())
        if total < slots:
            return Shares(self.shares)
        return Shares(
            self.shares,
            {
                priority: self._debt(priority, share * total, claimed.get(priority, 0))
                for priority, share in self.shares.items()
            },
        )

    def _debt(self, priority: Priority, earned: float, got: int) -> float:
        before = self.owed.get(priority, 0.0)
        debt = max(0.0, before + earned - got)
        had_too_few = got < int(before + _ROUNDING)
        return min(debt, max(1.0, earned)) if had_too_few else debt


_ROUNDING = 1e-9
"""Ten times a tenth is a whole slot."""
