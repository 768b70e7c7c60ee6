"""Simulated queues with traffic that follows the day and the week, and comes in bursts. Virtual time, no store.

Each queue has a number of slots and serves its tasks in their order. What the rules see is computed as a store
would: runs and deaths of the last ten minutes, the usual from sums by the hour.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidegate.alerts.episodes import apply_pass
from tidegate.alerts.observation import WINDOW_SECONDS, Observation, ObservedQueue
from tidegate.alerts.rules import measure
from tidegate.alerts.settings import INTERVAL_SECONDS, default_rules
from tidegate.alerts.usual import Usual, compare_times, surge_of
from tidegate.domain.durations import bucket_of
from tidegate.policy.surge import baseline_windows
from tidegate.store.alert_rows import Episode, EpisodeState

DAY, HOUR = 86_400.0, 3_600.0
START = 1_800_000_000.0 // DAY * DAY


@dataclass
class Line:
    """One queue with one function, and what happens there."""

    name: str
    tasks_per_second: float
    """On an average weekday."""
    run_seconds: float
    slots: int
    swing: float = 0.8
    """How much the traffic of a day goes up and down."""
    weekend: float = 0.4
    bursts_per_day: float = 6.0
    burst_minutes: float = 2.0
    """How long the slots work on a burst, on average. Sizes are spread exponentially."""
    failing: float = 0.03
    """The share of the runs that are retried."""
    dying: float = 0.004
    """The share of the tasks that die."""
    break_from: float = math.inf
    """From this second of the simulation until `break_until` most tasks die."""
    break_until: float = math.inf
    slow_from: float = math.inf
    """From this second on runs take five times as long, on ten times the slots."""
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    depth: int = 0
    credit: float = 0.0


@dataclass
class Ended:
    """What ended in one step."""

    at: float
    succeeded: int
    retried: int
    dead: int
    times: Counter[int]


class Traffic:
    """Steps through virtual time and applies the rules at each pass.

    Args:
        lines: The queues.
        seed: Of everything that is random.
    """

    def __init__(self, lines: list[Line], seed: int) -> None:
        self.lines = lines
        self.now = START
        self.sent: list[tuple[float, str, Episode]] = []
        """When, `opened` or `ended`, and the episode."""
        self._rng = random.Random(seed)
        self._recent: dict[str, deque[Ended]] = defaultdict(deque)
        self._by_hour: dict[str, dict[int, tuple[Counter[int], list[int]]]] = defaultdict(dict)
        self._usual, self._usual_hour = Usual(), -1
        self._episodes: dict[str, Episode] = {}
        self._rules = default_rules()
        self._ids = (f"e{number}" for number in itertools.count(1))

    def run(self, days: float) -> None:
        """Go on for some days."""
        end = self.now + days * DAY
        while self.now < end:
            self.now += INTERVAL_SECONDS
            for line in self.lines:
                self._serve(line)
            self._pass()

    def opened(self) -> Counter[tuple[str, str]]:
        """Return how many alerts opened, by rule and subject."""
        return Counter((each.rule, each.subject) for _, word, each in self.sent if word == "opened")

    # --- traffic ---

    def _serve(self, line: Line) -> None:
        since = self.now - START
        arrived = self._poisson(self._rate(line, since) * INTERVAL_SECONDS)
        if self._rng.random() < line.bursts_per_day * INTERVAL_SECONDS / DAY:
            capacity = line.slots / line.run_seconds
            arrived += int(self._rng.expovariate(1.0 / (line.burst_minutes * 60.0)) * capacity)
        if arrived:
            line.waiting.append((self.now, arrived))
            line.depth += arrived
        is_slow = since >= line.slow_from
        slots = line.slots * (10 if is_slow else 1)
        seconds = self._run_seconds(line, since) * (5 if is_slow else 1)
        line.credit = min(line.credit, 1.0) + slots * INTERVAL_SECONDS / seconds
        done = min(line.depth, int(line.credit))
        line.credit -= done
        line.depth -= done
        left = done
        while left:
            at, count = line.waiting[0]
            taken = min(left, count)
            left -= taken
            if taken == count:
                line.waiting.popleft()
            else:
                line.waiting[0] = (at, count - taken)
        self._end(line, done, seconds, is_broken=line.break_from <= since < line.break_until)

    def _rate(self, line: Line, since: float) -> float:
        day = 1.0 - line.swing * math.cos(since % DAY / DAY * 2.0 * math.pi)
        return line.tasks_per_second * day * (line.weekend if since // DAY % 7 >= 5 else 1.0)

    def _run_seconds(self, line: Line, since: float) -> float:
        """Providers are slower by day, and drift from hour to hour."""
        hour = random.Random(f"{line.name} {since // HOUR}").uniform(0.85, 1.25)
        return line.run_seconds * hour * (1.0 - 0.2 * math.cos(since % DAY / DAY * 2.0 * math.pi))

    def _end(self, line: Line, done: int, seconds: float, *, is_broken: bool) -> None:
        if not done:
            return
        rng = self._rng
        dying = 0.7 if is_broken else line.dying
        dead = self._binomial(done, dying)
        retried = self._binomial(done, line.failing)
        times: Counter[int] = Counter(
            bucket_of(seconds * rng.lognormvariate(-0.18, 0.6)) for _ in range(done)
        )
        ended = Ended(self.now, done - dead, retried, dead, times)
        self._recent[line.name].append(ended)
        hour = int(self.now // HOUR)
        sums, counts = self._by_hour[line.name].setdefault(hour, (Counter(), [0, 0]))
        sums.update(times)
        counts[0] += dead
        counts[1] += done

    def _poisson(self, mean: float) -> int:
        if mean > 30.0:
            return max(0, round(self._rng.gauss(mean, math.sqrt(mean))))
        limit, count, product = math.exp(-mean), 0, self._rng.random()
        while product > limit:
            count += 1
            product *= self._rng.random()
        return count

    def _binomial(self, count: int, share: float) -> int:
        return sum(self._rng.random() < share for _ in range(count))

    # --- the rules ---

    def _pass(self) -> None:
        self._renew_usual()
        changes = apply_pass(
            list(self._episodes.values()),
            measure(Observation(self.now, queues=list(self._queues()), functions=list(self._functions()))),
            rules=self._rules,
            mutes=[],
            now=self.now,
            longest_gap=4 * INTERVAL_SECONDS,
            make_id=lambda: next(self._ids),
        )
        for episode in changes.saved:
            if episode.state is EpisodeState.ENDED:
                self._episodes.pop(episode.id, None)
            else:
                self._episodes[episode.id] = episode
        for episode in changes.dropped:
            self._episodes.pop(episode.id, None)
        self.sent += [(self.now - START, "opened", each) for each in changes.opened]
        self.sent += [(self.now - START, "ended", each) for each in changes.ended]

    def _queues(self) -> Iterator[ObservedQueue]:
        for line in self.lines:
            recent = self._recent[line.name]
            while recent and recent[0].at <= self.now - WINDOW_SECONDS:
                recent.popleft()
            dead = sum(each.dead for each in recent)
            retried = sum(each.retried for each in recent)
            succeeded = sum(each.succeeded for each in recent)
            limit, why = surge_of(self._usual, line.name, minutes=10.0, deaths=dead, ended=succeeded + dead)
            yield ObservedQueue(
                line.name,
                runnable=line.depth,
                oldest_seconds=self.now - line.waiting[0][0] if line.waiting else 0.0,
                drain_seconds=line.depth * line.run_seconds / line.slots,
                runs=succeeded + dead + retried,
                failed_runs=dead + retried,
                deaths=dead,
                surge_limit=limit,
                surge_why=why,
            )

    def _functions(self) -> Iterator[tuple[str, object]]:
        for line in self.lines:
            times: Counter[int] = Counter()
            for each in self._recent[line.name]:
                times.update(each.times)
            yield line.name, compare_times(times, self._usual.functions.get(line.name, {}))

    def _renew_usual(self) -> None:
        hour = int(self.now // HOUR)
        if hour == self._usual_hour:
            return
        self._usual_hour = hour
        first = int(START // 60)
        baseline = baseline_windows(int(self.now // 60), 10, first)
        functions, deaths = {}, {}
        for line in self.lines:
            hours = self._by_hour[line.name]
            times: Counter[int] = Counter()
            for each in range(hour - 169, hour - 1):
                if each in hours:
                    times.update(hours[each][0])
            functions[line.name] = dict(times)
            deaths[line.name] = [self._sum(hours, each.first, each.end) for each in baseline.windows]
        periods = [each.end - each.first for each in baseline.windows]
        self._usual = Usual(functions, {}, periods, baseline.name, deaths)

    @staticmethod
    def _sum(hours: dict[int, tuple[Counter[int], list[int]]], first: int, end: int) -> tuple[int, int]:
        found = [hours[each][1] for each in range(first // 60, end // 60) if each in hours]
        return sum(each[0] for each in found), sum(each[1] for each in found)
