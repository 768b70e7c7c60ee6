"""Shared by all figures: contestants that take turns, and the lines of the table.

A *contestant* is one way of doing the work: Tidegate itself, the hand-written limit, a peer. Each runs in
a fresh interpreter on a fresh file, and they take turns round by round, so that a noisy minute of the
machine falls on all of them alike.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

OURS = "tidegate"
LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Settings:
    """How large and how often."""

    n: int = 20_000
    """Tasks drained in one round; the other figures scale with it."""
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class Goal:
    """What a line should reach."""

    text: str
    is_met: bool


@dataclass(slots=True)
class ResultLine:
    """One line of the table: a measured quantity, by contestant and round."""

    label: str
    unit: str
    rounds: dict[str, list[float]]
    """One value per round and contestant; the first contestant is the one to compare."""
    base: str = LIMIT
    """The contestant that the ratio is to."""
    goals: list[Goal] = field(default_factory=list)
    note: str = ""
    noise_cores: float = 0.0

    @property
    def subject(self) -> str:
        """The contestant to compare."""
        return next(iter(self.rounds))

    def median(self, who: str) -> float:
        """Return the median over the rounds of one contestant."""
        return statistics.median(self.rounds[who])

    def ratio(self, base: str | None = None) -> float | None:
        """Return the median over the rounds of subject ÷ base; None without such a base.

        Each round is divided by its own neighbour, so that what slows both leaves the ratio alone.
        """
        others = self.rounds.get(self.base if base is None else base)
        if not others or not all(others):
            return None
        pairs = zip(self.rounds[self.subject], others, strict=True)
        return statistics.median(mine / other for mine, other in pairs)

    def add_goal(self, text: str, is_met: bool) -> None:
        """Add a goal and whether it was met."""
        self.goals.append(Goal(text, is_met))


Contestant = Callable[[], Mapping[str, float]]
"""Runs one round and returns its values by name."""


Rounds = dict[str, dict[str, list[float]]]
"""{value: {contestant: one number a round}}"""


def run_in_turns(
    rounds: int,
    contestants: Mapping[str, Contestant],
    *,
    on_round: Callable[[Rounds], object] = lambda _: None,
) -> Rounds:
    """Run every contestant once per round, one after the other; log the values after each round."""
    table: Rounds = {}
    for number in range(1, rounds + 1):
        for who, run in contestants.items():
            log_progress(f"  round {number} of {rounds}: {who}")
            for name, value in run().items():
                table.setdefault(name, {}).setdefault(who, []).append(value)
        on_round(table)
    return table


def log_progress(text: str) -> None:
    """Log progress to stderr; stdout is for the table."""
    print(text, file=sys.stderr, flush=True)
