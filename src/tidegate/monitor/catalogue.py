"""Every metric: its name, type, labels and help. The reference page is made from this list."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """The type of a metric in Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Labels hold only names that an application declares or an operator configures, and fixed words: never the
    id of a task, a worker or a tenant.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"tidegate_{name}", MetricKind.GAUGE, text, labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"tidegate_{name}_total", MetricKind.COUNTER, text, labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"tidegate_{name}", MetricKind.HISTOGRAM, text, labels)


# --- tasks and runs --------------------------------------------------------------------------------------

TASKS_ENQUEUED = _counter("tasks_enqueued", "Tasks that were enqueued.", "queue", "function")
TASKS_FINISHED = _counter(
    "tasks_finished",
    "Tasks that became final: `succeeded`, `dead` or `cancelled`. A redriven task counts at each end.",
    "queue",
    "function",
    "outcome",
)
RETRIES = _counter(
    "retries",
    "Runs after which the task waited for its next run, by the reason of the failure. `reason` is empty for"
    " those before 0.2.0.",
    "queue",
    "function",
    "reason",
)
DEATHS = _counter(
    "deaths",
    "Tasks that died, by the reason of the last failure. A redriven task that dies again counts again."
    " `reason` is empty for those before 0.2.0.",
    "queue",
    "function",
    "reason",
)
RUNS_RELEASED = _counter(
    "runs_released", "Runs that were given back unfinished, without a charged attempt.", "queue", "function"
)
RUN_SECONDS = _histogram(
    "task_run_seconds", "How long runs took that ended with any outcome.", "queue", "function"
)
WAIT_SECONDS = _histogram(
    "task_wait_seconds",
    "How long tasks were ready before their runs started.",
    "queue",
    "function",
)
TOTAL_SECONDS = _histogram(
    "task_total_seconds",
    "How long tasks that ended after a run took from their enqueue (or last redrive) to their end.",
    "queue",
    "function",
)
UPSTREAM_CALLS = _counter(
    "upstream_calls",
    "Calls to an upstream that tasks made through Tidegate's transports, when their run ended: `succeeded`,"
    " `interrupted` by the end of the run, or the reason of the failure.",
    "upstream",
    "outcome",
)
CALLS_WITH_USAGE = _counter(
    "upstream_calls_with_usage", "Calls to an upstream whose responses stated the tokens used.", "upstream"
)
CACHED_STEPS = _counter(
    "cached_steps",
    "Steps with a `cache`: `hit` got a recent result, `shared` waited for a task that did the same work, and"
    " `miss` did the work.",
    "queue",
    "function",
    "outcome",
)
TOKENS = _counter(
    "tokens", "Tokens that responses of an upstream stated: `input` or `output`.", "upstream", "direction"
)

# --- queues ----------------------------------------------------------------------------------------------

QUEUE_TASKS = _gauge(
    "queue_tasks",
    "Tasks in a state. `ready` may start, `paced` wait for their slot of a limit, `blocked` cannot run until"
    " something changes, `dead` are dead letters.",
    "queue",
    "state",
)
QUEUE_RUNNABLE_TASKS = _gauge(
    "queue_runnable_tasks",
    "Tasks that may start now or as soon as a limit allows: ready and paced tasks.",
    "queue",
)
QUEUE_BLOCKED_TASKS = _gauge(
    "queue_blocked_tasks",
    "Ready tasks that cannot run: `paused` by a person, `upstream` closed, no live `worker` for them.",
    "queue",
    "reason",
)
QUEUE_OLDEST_AGE = _gauge(
    "queue_oldest_runnable_age_seconds",
    "How long the oldest runnable task has been ready; 0 if there is none.",
    "queue",
)
QUEUE_DRAIN = _gauge(
    "queue_drain_seconds",
    "Estimated time until the runnable tasks are done: +Inf if more arrive than can be finished or none"
    " finished lately, NaN if no task ever finished, 0 if all tasks are blocked.",
    "queue",
)
QUEUE_PAUSED = _gauge("queue_paused", "1 while a person has paused the queue, else 0.", "queue")

# --- workers ---------------------------------------------------------------------------------------------

WORKERS = _gauge(
    "workers",
    "Worker processes: `live`, `late` with their heartbeat but live, or `lost`, with tasks not requeued yet.",
    "pool",
    "state",
)
WORKER_SLOTS = _gauge("worker_slots", "Slots of the live workers: tasks that they can run at once.", "pool")
WORKER_SLOTS_BUSY = _gauge("worker_slots_busy", "Slots of the live workers in which a task runs.", "pool")
WORKER_HEARTBEAT = _gauge(
    "worker_last_heartbeat_timestamp_seconds",
    "The oldest of the last heartbeats of all live workers.",
    "pool",
)

LEASES_EXPIRED = _counter(
    "leases_expired", "Workers whose lease ran out, so that their tasks were requeued.", "pool"
)
POOL_DESIRED_WORKERS = _gauge(
    "pool_desired_workers",
    "How many workers the pool could use for its runnable work under the limits of its upstreams.",
    "pool",
)
POOL_DESIRED_SLOTS = _gauge(
    "pool_desired_slots", "How many slots the pool could use, before rounding to workers.", "pool"
)

# --- upstreams -------------------------------------------------------------------------------------------

GATE_STATE = _gauge(
    "gate_state",
    "1 for the present state of an upstream's gate, otherwise 0. `key` is empty for the upstream itself.",
    "upstream",
    "key",
    "state",
)
LIMIT_CAPACITY = _gauge(
    "limit_capacity",
    "A limit of an upstream: requests in its window, or `max_in_flight` calls at once.",
    "upstream",
    "key",
    "limit",
)
LIMIT_IN_USE = _gauge(
    "limit_in_use", "Calls in flight to an upstream; `max_in_flight` limits them.", "upstream", "key", "limit"
)
UPSTREAM_TASKS = _gauge(
    "upstream_tasks",
    "Tasks of an upstream: `ready`, `paced` (the ready tasks that wait for its limits) and `retrying`.",
    "upstream",
    "state",
)
RETRY_BUDGET = _gauge(
    "retry_budget_capacity",
    "Re-runs that a retry budget allows in its window. `upstream` is empty for the whole system.",
    "upstream",
)
RETRY_BUDGET_USED = _gauge(
    "retry_budget_used", "Re-runs that have started in the present window of a retry budget.", "upstream"
)
RETRY_BUDGET_HELD = _gauge("retry_budget_held_tasks", "Due tasks that a retry budget holds back.", "upstream")

# --- schedules -------------------------------------------------------------------------------------------

SCHEDULE_PAUSED = _gauge("schedule_paused", "1 while a person has paused the schedule, else 0.", "schedule")
SCHEDULE_NEXT = _gauge(
    "schedule_next_tick_timestamp_seconds", "The next tick of a schedule that is not paused.", "schedule"
)
SCHEDULE_LAST = _gauge(
    "schedule_last_tick_timestamp_seconds",
    "The last tick of a schedule with an outcome: fired, queued, skipped or missed.",
    "schedule",
)

SCHEDULE_LAST_SUCCESS = _gauge(
    "schedule_last_success_timestamp_seconds",
    "When the latest successful task of a schedule's last 20 ticks ended, if it is still kept.",
    "schedule",
)
SCHEDULE_UNFIRED = _counter(
    "schedule_unfired_ticks",
    "Ticks of a schedule that fired no task: `missed` or `skipped`.",
    "schedule",
    "outcome",
)

# --- about this program ----------------------------------------------------------------------------------

OPEN_DOUBTS = _gauge(
    "open_doubts", "Calls that were sent and have no definite answer, and about which nobody has decided."
)
BUILD_INFO = _gauge("build_info", "1, with the version of Tidegate that serves the metrics.", "version")

METRICS: tuple[Metric, ...] = (
    TASKS_ENQUEUED,
    TASKS_FINISHED,
    RETRIES,
    DEATHS,
    RUNS_RELEASED,
    RUN_SECONDS,
    WAIT_SECONDS,
    TOTAL_SECONDS,
    UPSTREAM_CALLS,
    CALLS_WITH_USAGE,
    CACHED_STEPS,
    TOKENS,
    QUEUE_TASKS,
    QUEUE_RUNNABLE_TASKS,
    QUEUE_BLOCKED_TASKS,
    QUEUE_OLDEST_AGE,
    QUEUE_DRAIN,
    QUEUE_PAUSED,
    WORKERS,
    WORKER_SLOTS,
    WORKER_SLOTS_BUSY,
    WORKER_HEARTBEAT,
    LEASES_EXPIRED,
    POOL_DESIRED_WORKERS,
    POOL_DESIRED_SLOTS,
    GATE_STATE,
    LIMIT_CAPACITY,
    LIMIT_IN_USE,
    UPSTREAM_TASKS,
    RETRY_BUDGET,
    RETRY_BUDGET_USED,
    RETRY_BUDGET_HELD,
    SCHEDULE_PAUSED,
    SCHEDULE_NEXT,
    SCHEDULE_LAST,
    SCHEDULE_LAST_SUCCESS,
    SCHEDULE_UNFIRED,
    OPEN_DOUBTS,
    BUILD_INFO,
)
"""All metrics, in the order in which they are written."""
