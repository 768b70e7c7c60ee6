"""What was measured: {value: {contestant: one number a round}}, asked by name."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.harness import Rounds
from benchmarks.peers.catalogue import Contestant


@dataclass(frozen=True, slots=True)
class Results:
    """The rounds of all who were there in each."""

    contestants: list[Contestant]
    rounds: Mapping[str, Mapping[str, list[float]]]
    n: int
    """Tasks drained in a round."""

    @classmethod
    def complete(cls, contestants: list[Contestant], rounds: Rounds, n: int) -> Results:
        """Return the results without those who failed in a round."""
        held = {name: len(found) for name, found in rounds.get("noise", {}).items()}
        most = max(held.values(), default=0)
        return cls([each for each in contestants if most and held.get(each.name) == most], rounds, n)

    def of(self, who: str, value: str) -> list[float]:
        """Return a value's rounds, none if it was not measured."""
        return self.rounds.get(value, {}).get(who, [])

    def median(self, who: str, value: str) -> float | None:
        """Return a value's median; None if it was not measured."""
        found = self.of(who, value)
        return statistics.median(found) if found else None

    def cpu(self, who: str) -> float | None:
        """Return the median of worker and server CPU together, in seconds of 1,000 tasks."""
        both = list(zip(self.of(who, "drain.worker_cpu"), self.of(who, "drain.server_cpu"), strict=True))
        return statistics.median(worker + server for worker, server in both) if both else None

    def ratio(self, who: str, value: str, other: str, other_value: str = "") -> float | None:
        """Return the median over the rounds of `who` ÷ `other`; None where one was not measured.

        Each round is divided by its own neighbour, so that what slows both leaves the ratio alone.
        """
        mine, others = self.of(who, value), self.of(other, other_value or value)
        if not mine or len(mine) != len(others) or not all(others):
            return None
        return statistics.median(one / other for one, other in zip(mine, others, strict=True))

    def best(self, value: str, among: Callable[[Contestant], bool]) -> str | None:
        """Return who of these has the highest median; None if nobody was measured."""
        medians = {each.name: self.median(each.name, value) for each in self.contestants if among(each)}
        known = {name: median for name, median in medians.items() if median is not None}
        return max(known, key=lambda name: known[name]) if known else None
