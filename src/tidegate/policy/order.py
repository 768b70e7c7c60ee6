"""Decides which ready task goes first: the shares of priorities, and what changes a task's rank.

In a channel tasks go in the order of their rank: the time they became runnable, plus or minus the seconds
below. So a penalty delays a task against newer tasks by that much and no more, and no task starves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.domain.spec import Priority

PENALTY_SECONDS = 60.0
"""Added to the rank for each charged attempt: a task that failed lets others go first."""

LIFT_SECONDS = 600.0
"""Subtracted from the rank of a released run: it goes before tasks that have waited less than this."""

DEFAULT_SHARES: Mapping[Priority, float] = {Priority.NORMAL: 0.10, Priority.BULK: 0.10}
"""The guaranteed share of all claims for each lower priority that has tasks."""


class Portion(NamedTuple):
    """A number of tasks of one priority."""

    priority: Priority
    tasks: int


def apportion(
    slots: int, reserved: Mapping[Priority, int], count_ready: Callable[[Priority, int], int]
) -> list[Portion]:
    """Divide the slots of one claim between the priorities.

    First each priority gets the slots reserved for it. The rest goes to the most urgent priority that has
    tasks. `count_ready` is called only for priorities whose tasks may be needed.

    Args:
        slots: The number of tasks to take in total.
        reserved: The slots reserved for each priority, if it has that many tasks.
        count_ready: Returns how many tasks of a priority are ready, counting up to the given number.

    Returns:
        Portions in the order in which to take them. A priority may have two.
    """
    portions: list[Portion] = []
    taken = dict.fromkeys(Priority, 0)

    def take(priority: Priority, wanted: int) -> None:
        at_most = min(wanted, slots - sum(taken.values()))
        if at_most <= 0:
            return
        tasks = min(at_most, count_ready(priority, taken[priority] + at_most) - taken[priority])
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
    """The slots owed to each lower priority, carried from claim to claim.

    An immutable value: `after` returns the next rank. Each claimed task adds a priority's share to what it is
    owed, and each claimed task of that priority subtracts one. A priority with fewer tasks than it is owed
    gains no more.
    """

    shares: Mapping[Priority, float] = field(default_factory=lambda: DEFAULT_SHARES)
    owed: Mapping[Priority, float] = field(default_factory=dict)
    """The number of tasks owed, with fractions, by priority."""

    def reserved(self) -> dict[Priority, int]:
        """Return the whole slots owed, for `ClaimRequest.reserved`."""
        whole = {priority: int(debt + _ROUNDING) for priority, debt in self.owed.items()}
        return {priority: slots for priority, slots in whole.items() if slots > 0}

    def after(self, claimed: Mapping[Priority, int], slots: int) -> Shares:
        """Return the shares after a claim that was made with `reserved()`.

        Args:
            claimed: The tasks that the claim got, by priority.
            slots: The tasks that the claim requested. If it got fewer, no task waits and nothing is owed.
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
"""Added before rounding down, so that ten times 0.1 counts as one whole slot."""
