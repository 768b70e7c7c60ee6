"""Computes the values of the metrics from one reading of the store. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from tidegate._version import __version__
from tidegate.domain.durations import BUCKETS, longest_of
from tidegate.limits.values import GateState, upstream_of_key_gate
from tidegate.monitor import catalogue
from tidegate.monitor.catalogue import Metric
from tidegate.monitor.reading import Reading
from tidegate.policy.backlog import WORKERS, WaitKind
from tidegate.policy.drain import DrainKind
from tidegate.store.history_rows import EventKind
from tidegate.store.live_workers import is_live, late_seconds
from tidegate.store.rows import QueueStats
from tidegate.store.worker_rows import WorkerRow

_QUEUE_STATES = ("ready", "paced", "blocked", "running", "retrying", "scheduled", "held", "suspended", "dead")
_BLOCKED_REASONS = ("paused", "upstream", "worker")
_WORKER_STATES = ("live", "late", "lost")


_TIMES = {"run": catalogue.RUN_SECONDS, "wait": catalogue.WAIT_SECONDS, "total": catalogue.TOTAL_SECONDS}
_EVENTS = {
    EventKind.RETRIED: catalogue.RETRIES,
    EventKind.DEAD: catalogue.DEATHS,
    EventKind.CALL: catalogue.UPSTREAM_CALLS,
    EventKind.LEASE_EXPIRED: catalogue.LEASES_EXPIRED,
    EventKind.TICK: catalogue.SCHEDULE_UNFIRED,
    EventKind.CACHE: catalogue.CACHED_STEPS,
}


class Sample(NamedTuple):
    """One value of a metric."""

    metric: Metric
    labels: tuple[str, ...]
    """The values of the metric's labels, in the order of the labels."""
    value: float


def samples_of(reading: Reading) -> Iterator[Sample]:
    """Return the values of all gauges and counters."""
    yield from _totals(reading)
    yield from _events(reading)
    yield from _queues(reading)
    yield from _workers(reading)
    yield from _upstreams(reading)
    yield from _schedules(reading)
    for pool, decision in reading.scaling.items():
        yield Sample(catalogue.POOL_DESIRED_WORKERS, (pool,), decision.workers)
        yield Sample(catalogue.POOL_DESIRED_SLOTS, (pool,), decision.slots)
    yield Sample(catalogue.OPEN_DOUBTS, (), reading.stored.open_doubts)
    yield Sample(catalogue.BUILD_INFO, (__version__,), 1)


class Distribution(NamedTuple):
    """The values of a histogram."""

    metric: Metric
    labels: tuple[str, ...]
    buckets: tuple[tuple[float, int], ...]
    """The upper bound of each bucket, and how many values are not above it."""
    sum: float


def distributions_of(reading: Reading) -> Iterator[Distribution]:
    """Return the values of all histograms."""
    seconds: dict[tuple[str, str, str], float] = defaultdict(float)
    for row in reading.stored.totals.rows:
        seconds[row.queue, row.function, "run"] += row.run_seconds
        seconds[row.queue, row.function, "wait"] += row.wait_seconds
        seconds[row.queue, row.function, "total"] += row.total_seconds
    for times in reading.stored.totals.times:
        metric = _TIMES[times.kind]
        counts = [times.by_bucket.get(bucket, 0) for bucket in range(BUCKETS)]
        buckets = tuple(zip(map(longest_of, range(BUCKETS)), accumulate(counts), strict=True))
        total = seconds[times.queue, times.function, times.kind]
        yield Distribution(metric, (times.queue, times.function), buckets, total)


def _totals(reading: Reading) -> Iterator[Sample]:
    functions: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    upstreams: dict[str, Counter[str]] = defaultdict(Counter)
    for row in reading.stored.totals.rows:
        for name in ("enqueued", "succeeded", "dead", "cancelled", "released"):
            functions[row.queue, row.function][name] += getattr(row, name)
        for name in ("calls", "input_tokens", "output_tokens"):
            upstreams[row.upstream][name] += getattr(row, name)
    for function, sums in functions.items():
        yield Sample(catalogue.TASKS_ENQUEUED, function, sums["enqueued"])
        for outcome in ("succeeded", "dead", "cancelled"):
            yield Sample(catalogue.TASKS_FINISHED, (*function, outcome), sums[outcome])
        yield Sample(catalogue.RUNS_RELEASED, function, sums["released"])
    for upstream, sums in upstreams.items():
        if upstream or sums["calls"]:
            yield Sample(catalogue.CALLS_WITH_USAGE, (upstream,), sums["calls"])
            yield Sample(catalogue.TOKENS, (upstream, "input"), sums["input_tokens"])
            yield Sample(catalogue.TOKENS, (upstream, "output"), sums["output_tokens"])


def _events(reading: Reading) -> Iterator[Sample]:
    for event in reading.stored.totals.events:
        metric = _EVENTS[event.kind]
        values = {"queue": event.name, "function": event.function, "reason": event.reason}
        names = {"upstream", "pool", "schedule"} & set(metric.labels)
        values |= dict.fromkeys(names, event.name) | {"outcome": event.reason}
        yield Sample(metric, tuple(values[label] for label in metric.labels), event.events)


def _queues(reading: Reading) -> Iterator[Sample]:
    for stats in reading.stored.overview.queues:
        queue = (stats.queue,)
        for state in _QUEUE_STATES:
            yield Sample(catalogue.QUEUE_TASKS, (stats.queue, state), getattr(stats, state))
        yield Sample(catalogue.QUEUE_RUNNABLE_TASKS, queue, stats.ready + stats.paced)
        blocked = _blocked_by_reason(stats)
        for reason in _BLOCKED_REASONS:
            yield Sample(catalogue.QUEUE_BLOCKED_TASKS, (stats.queue, reason), blocked[reason])
        oldest = stats.oldest_ready_at
        age = 0.0 if oldest is None else max(0.0, reading.stored.overview.at - oldest)
        yield Sample(catalogue.QUEUE_OLDEST_AGE, queue, age)
        yield Sample(catalogue.QUEUE_DRAIN, queue, _drain_seconds(stats))
        yield Sample(catalogue.QUEUE_PAUSED, queue, stats.pause is not None)


def _blocked_by_reason(stats: QueueStats) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for wait in stats.waits:
        if wait.kind is WaitKind.BLOCKED:
            is_paused = wait.by.startswith(("queue ", "function "))
            found["worker" if wait.by == WORKERS else "paused" if is_paused else "upstream"] += wait.tasks
    return found


def _drain_seconds(stats: QueueStats) -> float:
    drain = stats.drain
    if drain.seconds is not None:
        return drain.seconds
    return {DrainKind.NEVER: math.inf, DrainKind.BLOCKED: 0.0}.get(drain.kind, math.nan)


def _workers(reading: Reading) -> Iterator[Sample]:
    now = reading.stored.overview.at
    pools: dict[str, list[WorkerRow]] = defaultdict(list)
    for worker in reading.stored.overview.workers:
        pools[worker.pool].append(worker)
    for pool, workers in sorted(pools.items()):
        states = Counter(_worker_state(worker, now) for worker in workers)
        for state in _WORKER_STATES:
            yield Sample(catalogue.WORKERS, (pool, state), states[state])
        live = [worker for worker in workers if is_live(worker, now)]
        yield Sample(catalogue.WORKER_SLOTS, (pool,), sum(worker.slots for worker in live))
        yield Sample(catalogue.WORKER_SLOTS_BUSY, (pool,), sum(worker.running for worker in live))
        if live:
            oldest = min(worker.heartbeat_at for worker in live)
            yield Sample(catalogue.WORKER_HEARTBEAT, (pool,), oldest)


def _worker_state(worker: WorkerRow, now: float) -> str:
    if not is_live(worker, now):
        return "lost"
    return "live" if late_seconds(worker, now) is None else "late"


def _upstreams(reading: Reading) -> Iterator[Sample]:
    for row in reading.stored.overview.upstreams:
        ring = upstream_of_key_gate(row.name)
        gate = (ring, row.name[len(ring) + 1 :]) if ring else (row.name, "")
        for state in GateState:
            yield Sample(catalogue.GATE_STATE, (*gate, state.value), row.gate.state is state)
        for window in row.limits.windows:
            yield Sample(catalogue.LIMIT_CAPACITY, (*gate, window.name), window.amount)
        if row.limits.max_in_flight is not None:
            yield Sample(catalogue.LIMIT_CAPACITY, (*gate, "max_in_flight"), row.limits.max_in_flight)
        yield Sample(catalogue.LIMIT_IN_USE, (*gate, "max_in_flight"), row.in_flight)
        if not ring:
            for name in ("ready", "paced", "retrying"):
                yield Sample(catalogue.UPSTREAM_TASKS, (row.name, name), getattr(row, name))
    for budget in reading.stored.budgets:
        upstream = (budget.name,)
        yield Sample(catalogue.RETRY_BUDGET, upstream, budget.amount)
        yield Sample(catalogue.RETRY_BUDGET_USED, upstream, budget.used)
        yield Sample(catalogue.RETRY_BUDGET_HELD, upstream, budget.held)


def _schedules(reading: Reading) -> Iterator[Sample]:
    for row in reading.stored.schedules:
        name = (row.name,)
        yield Sample(catalogue.SCHEDULE_PAUSED, name, row.paused_at is not None)
        if row.next_at is not None:
            yield Sample(catalogue.SCHEDULE_NEXT, name, row.next_at)
        if row.tick is not None:
            yield Sample(catalogue.SCHEDULE_LAST, name, row.tick.until_at)
        if row.name in reading.stored.last_successes:
            yield Sample(catalogue.SCHEDULE_LAST_SUCCESS, name, reading.stored.last_successes[row.name])
