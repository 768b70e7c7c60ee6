"""Reads the numbers that the rules check. Nothing here scans the finished tasks."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from tidegate.alerts.muted_groups import count_muted_deaths
from tidegate.alerts.observation import (
    WINDOW_SECONDS,
    Observation,
    ObservedBudget,
    ObservedPool,
    ObservedQueue,
    ObservedSchedule,
    ObservedUpstream,
    RunTimes,
    Unserved,
)
from tidegate.alerts.usual import (
    Times,
    Usual,
    compare_times,
    read_counts,
    surge_of,
    times_by_function,
    times_by_upstream,
)
from tidegate.domain.schedule import TickOutcome, TickReason
from tidegate.domain.text import counted, format_duration
from tidegate.limits.values import GateState, ParkedBy, is_key_gate
from tidegate.policy.backlog import WORKERS
from tidegate.policy.drain import Drain, DrainKind
from tidegate.policy.live_workers import LiveWorkers
from tidegate.store.alert_rows import WorkerEnd
from tidegate.store.history_rows import StatisticsRow
from tidegate.store.live_workers import load_live_workers
from tidegate.store.protocol import Store
from tidegate.store.rows import QueueStats
from tidegate.store.upstream_rows import RetryBudgetRow, UpstreamRow

_OVERDUE_SECONDS = 120.0
"""How long after its time a tick that no process fired is late. Firing takes seconds where a process does
it."""
_MOST_SCHEDULES = 100
_NAMES_SHOWN = 3
_BY_PEOPLE = (TickReason.PAUSED, TickReason.REMOVED)
"""The reasons of ticks that were missed because a person wanted it."""
SYSTEM = "system"
"""The name of the retry budget of the whole system."""


async def read_observation(
    store: Store, now: float, usual: Usual, *, muted: Collection[str], runs: int, calls: int
) -> Observation:
    """Read everything that one pass checks.

    Args:
        store: The store.
        now: The present moment, by the store's clock.
        usual: The usual values.
        muted: The fingerprints of muted groups of failures.
        runs: Read the tasks that ran more often than this.
        calls: Read the tasks that made more calls than this.
    """
    counts = await read_counts(store, now - WINDOW_SECONDS, now + 60.0)
    muted_deaths = await count_muted_deaths(store, muted, now - WINDOW_SECONDS, now + 60.0)
    live = await load_live_workers(store, now)
    unserved = _UnservedTasks(live)
    queues = await store.get_queue_stats(unserved.find_reason)
    return Observation(
        at=now,
        queues=_queues(queues, counts, muted_deaths, now, usual),
        unserved=unserved.found(queues),
        functions=_functions(times_by_function(counts), usual),
        upstreams=_upstreams(await store.list_upstreams(), times_by_upstream(counts), usual),
        pools=find_lost_workers(await store.list_worker_ends(), now),
        schedules=await _read_schedules(store, now),
        budgets=_budgets(await store.list_retry_budgets()),
        busy_tasks=await store.list_busy_tasks(runs=runs, calls=calls),
        connections=await store.get_connections(),
    )


class _UnservedTasks:
    """Collects the ready tasks that no live worker runs, while the store counts them."""

    def __init__(self, live: LiveWorkers) -> None:
        self._live = live
        self._functions: dict[tuple[str, str], set[str]] = defaultdict(set)
        """The functions by queue and reason."""

    def find_reason(self, queue: str, function: str) -> str:
        why = self._live.unserved(queue, function)
        if why:
            self._functions[queue, why].add(function)
        return why

    def found(self, queues: Iterable[QueueStats]) -> list[Unserved]:
        tasks: Counter[str] = Counter()
        reasons: dict[str, str] = {}
        for stats in queues:
            is_served = any(worker.serves(stats.queue) for worker in self._live.workers)
            for wait in stats.waits:
                if wait.by != WORKERS:
                    continue
                functions = self._functions.get((stats.queue, wait.reason), set())
                subject = f"function {min(functions)}" if is_served and functions else f"queue {stats.queue}"
                tasks[subject] += wait.tasks
                reasons[subject] = wait.reason
        return [Unserved(subject, tasks[subject], why) for subject, why in reasons.items()]


def _queues(
    queues: Sequence[QueueStats],
    counts: Iterable[StatisticsRow],
    muted_deaths: Mapping[str, int],
    now: float,
    usual: Usual,
) -> list[ObservedQueue]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for row in counts:
        mine = sums[row.queue]
        mine["runs"] += row.counts.succeeded + row.counts.dead + row.counts.retried
        mine["failed"] += row.counts.dead + row.counts.retried
        mine["dead"] += row.counts.dead
        mine["ended"] += row.counts.succeeded + row.counts.dead
    for name, deaths in muted_deaths.items():
        sums[name]["muted"] = min(deaths, sums[name]["dead"])
    found = {stats.queue: stats for stats in queues}
    return [
        _queue(found.get(name, QueueStats(name)), sums[name], now, usual) for name in sorted({*found, *sums})
    ]


def _queue(stats: QueueStats, sums: Counter[str], now: float, usual: Usual) -> ObservedQueue:
    oldest = stats.oldest_ready_at
    minutes = (now - (now - WINDOW_SECONDS) // 60.0 * 60.0) / 60.0  # counted from the start of a minute
    deaths = sums["dead"] - sums["muted"]
    surge_limit, surge_why = surge_of(
        usual, stats.queue, minutes=minutes, deaths=deaths, ended=sums["ended"] - sums["muted"]
    )
    left_out = f"{counted(sums['muted'], 'death')} of muted groups left out" if sums["muted"] else ""
    return ObservedQueue(
        stats.queue,
        runnable=stats.ready + stats.paced,
        oldest_seconds=0.0 if oldest is None else max(0.0, now - oldest),
        drain_seconds=_drain_seconds(stats.drain),
        drain_why=stats.drain.text,
        runs=sums["runs"],
        failed_runs=sums["failed"],
        deaths=deaths,
        surge_limit=surge_limit,
        surge_why="; ".join(filter(None, (surge_why, left_out))),
    )


def _drain_seconds(drain: Drain) -> float | None:
    return math.inf if drain.kind is DrainKind.NEVER else drain.seconds


def _functions(times: Mapping[str, Times], usual: Usual) -> list[tuple[str, RunTimes]]:
    return [(name, compare_times(mine, usual.functions.get(name, {}))) for name, mine in times.items()]


def _upstreams(
    rows: Iterable[UpstreamRow], times: Mapping[str, Times], usual: Usual
) -> list[ObservedUpstream]:
    return [
        ObservedUpstream(
            row.name,
            is_closed=row.gate.state is not GateState.FLOWING and row.gate.parked_by is not ParkedBy.PERSON,
            reason=row.gate.reason,
            waiting=row.ready + row.retrying,
            times=compare_times(times.get(row.name, {}), usual.upstreams.get(row.name, {})),
        )
        for row in rows
        if not is_key_gate(row.name)
    ]


def find_lost_workers(workers: Iterable[WorkerEnd], now: float) -> list[ObservedPool]:
    """Return the pools that lost a worker in the last ten minutes, or whose last worker was lost.

    A worker that ends in an orderly way is not lost. So a pool that was scaled to zero is not returned.
    """
    pools: dict[str, list[WorkerEnd]] = defaultdict(list)
    for worker in workers:
        pools[worker.pool].append(worker)
    found = []
    for name, mine in sorted(pools.items()):
        live = [each for each in mine if each.retired_at is None and each.expires_at > now]
        lost = sorted(
            (each for each in mine if _lost_at(each, now) is not None), key=lambda each: each.expires_at
        )
        if lost and not live:
            orderly = max((each.retired_at or 0.0 for each in mine if not each.is_lost), default=0.0)
            shown = lost if lost[-1].expires_at > orderly else []
        else:
            shown = [each for each in lost if now - (_lost_at(each, now) or 0.0) <= WINDOW_SECONDS]
        if shown:
            found.append(ObservedPool(name, len(shown), len(live), _names(shown)))
    return found


def _lost_at(worker: WorkerEnd, now: float) -> float | None:
    """Return when a worker was lost; None if it was not lost."""
    if worker.retired_at is not None:
        return worker.retired_at if worker.is_lost else None
    return worker.expires_at if worker.expires_at <= now else None


def _names(workers: Sequence[WorkerEnd]) -> tuple[str, ...]:
    names = list(dict.fromkeys(f"{each.name} on {each.host}" for each in reversed(workers)))
    more = len(names) - _NAMES_SHOWN
    return (*names[:_NAMES_SHOWN], f"{more} more") if more > 0 else tuple(names)


async def _read_schedules(store: Store, now: float) -> list[ObservedSchedule]:
    missed: Counter[str] = Counter()
    details: dict[str, str] = {}
    for tick in await store.list_unfired_ticks(since=now - WINDOW_SECONDS):
        if tick.outcome is TickOutcome.MISSED and tick.reason not in _BY_PEOPLE:
            missed[tick.schedule] += tick.ticks
            details[tick.schedule] = f"the reason is {tick.reason}"
    for due in await store.list_due_schedules(limit=_MOST_SCHEDULES):
        late = now - (due.row.next_at if due.row.next_at is not None else now)
        if late > _OVERDUE_SECONDS:
            missed[due.row.name] += 1
            details[due.row.name] = (
                f"a tick has been due for {format_duration(late)}, and no process has fired it"
            )
    return [ObservedSchedule(name, ticks, details[name]) for name, ticks in missed.items()]


def _budgets(rows: Iterable[RetryBudgetRow]) -> list[ObservedBudget]:
    return [ObservedBudget(row.name or SYSTEM, row.held) for row in rows if row.held]
