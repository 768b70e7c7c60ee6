"""Report runs to Sentry: a transaction for each run, and an event for each dead task or each failed attempt.

Example:
    >>> import sentry_sdk  # doctest: +SKIP
    >>> sentry_sdk.init(dsn="https://…", traces_sample_rate=0.1)  # doctest: +SKIP
    >>> use_sentry(app)  # doctest: +SKIP
"""

from __future__ import annotations

import re
from typing import Any, Literal

import sentry_sdk
from sentry_sdk.scope import Scope

from tidegate.app import Tidegate
from tidegate.domain.failure import Failure
from tidegate.domain.outcome import Charge
from tidegate.domain.readers import choice_option
from tidegate.events import RunFinished, RunOutcome, RunStarted, TaskDied
from tidegate.internals import core_of

SentryEvents = Literal["dead", "attempts", "none"]
"""What has an event: each task that died, each charged attempt that failed, or nothing."""

_FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$', re.M)
_STATUS = {
    RunOutcome.SUCCEEDED: "ok",
    RunOutcome.RETRYING: "internal_error",
    RunOutcome.DEAD: "internal_error",
    RunOutcome.CANCELLED: "cancelled",
    RunOutcome.RELEASED: "aborted",
    RunOutcome.SUSPENDED: "ok",
    RunOutcome.LOST: "aborted",
}
_FLUSH_SECONDS = 2.0


def use_sentry(app: Tidegate, *, events: SentryEvents = "dead", transactions: bool = True) -> Tidegate:
    """Report the runs of an application to Sentry; return the application.

    Call it once, after `sentry_sdk.init`, in the module of the application. Each run has an isolation scope
    of its own, so tags and breadcrumbs of one task never appear on another. Arguments and results are never
    sent, and secrets in messages and tracebacks are masked.

    Args:
        app: The application.
        events: What has an event: `dead`, each task that died; `attempts`, each charged attempt that failed;
            `none`.
        transactions: Whether each run has a transaction. The sample rate of `sentry_sdk.init` applies.

    Raises:
        OptionError: `events` is none of these words.
    """
    choice_option("events", events, ("dead", "attempts", "none"))
    reports = _Reports(transactions=transactions)
    app.on_event(RunStarted)(reports.on_started)
    if events == "dead":
        app.on_event(TaskDied)(reports.on_died)
    elif events == "attempts":
        app.on_event(RunFinished)(reports.on_failed_attempt)
    app.on_event(RunFinished)(reports.on_finished)
    core_of(app).events.exporters.add(lambda: sentry_sdk.flush(_FLUSH_SECONDS))
    sentry_sdk.get_global_scope().add_event_processor(_without_our_log_lines)
    return app


class _Reports:
    """Makes transactions and events of the events of runs.

    Args:
        transactions: Whether each run has a transaction.
    """

    def __init__(self, *, transactions: bool) -> None:
        self._transactions = transactions
        self._open: dict[tuple[str, int], tuple[Scope, Any]] = {}
        """The scope and the transaction of each run."""

    def on_started(self, event: RunStarted) -> None:
        """Give a run its own scope, in its own `contextvars` context, and start its transaction."""
        isolation = sentry_sdk.get_isolation_scope().fork()
        scope = sentry_sdk.get_current_scope().fork()
        Scope.set_isolation_scope(isolation)
        Scope.set_current_scope(scope)
        isolation.clear_breadcrumbs()
        for name, value in _tags(event).items():
            isolation.set_tag(name, value)
        isolation.set_transaction_name(event.function, source="task")
        transaction = self._start(event) if self._transactions else None
        self._open[event.task_id, event.run] = isolation, transaction

    def _start(self, event: RunStarted) -> Any:
        headers = {}
        if event.trace is not None and event.run == 1:  # each retry is a trace of its own, which stays short
            sampled = int(event.trace.flags, 16) & 1
            headers["sentry-trace"] = f"{event.trace.trace_id}-{event.trace.span_id}-{sampled}"
        transaction = sentry_sdk.start_transaction(
            sentry_sdk.continue_trace(headers, op="queue.process", name=event.function, source="task")
        )
        transaction.set_data("messaging.message.id", event.task_id)
        transaction.set_data("messaging.destination.name", event.queue)
        transaction.set_data("messaging.message.receive.latency", event.wait_seconds * 1_000)
        transaction.set_data("messaging.message.retry.count", event.run - 1)
        transaction.__enter__()
        return transaction

    def on_finished(self, event: RunFinished) -> None:
        """End the transaction of a run."""
        _, transaction = self._open.pop((event.task_id, event.run), (None, None))
        if transaction is not None:
            transaction.set_status(_STATUS[event.outcome])
            transaction.set_data("tidegate.outcome", str(event.outcome))
            transaction.__exit__(None, None, None)

    def on_failed_attempt(self, event: RunFinished) -> None:
        """Report a charged attempt that failed."""
        if event.failure is not None and event.charge == Charge.ATTEMPT:
            level = "error" if event.outcome is RunOutcome.DEAD else "warning"
            self._capture(event, event.failure, event.why, level)

    def on_died(self, event: TaskDied) -> None:
        """Report a task that died."""
        self._capture(event, event.failure, event.why, "error")

    def _capture(self, event: RunFinished | TaskDied, failure: Failure, why: str, level: str) -> None:
        known = self._open.get((event.task_id, event.run))
        scope = sentry_sdk.get_isolation_scope() if known is None else known[0]
        with sentry_sdk.scope.use_isolation_scope(scope):
            sentry_sdk.capture_event(_sentry_event(event, failure, why, level))


def _sentry_event(event: RunFinished | TaskDied, failure: Failure, why: str, level: str) -> Any:
    """Return what Sentry stores of a failure. The event has the traceback as frames, made from its text."""
    module, _, name = failure.error_class.rpartition(".")
    frames = [
        {"filename": found["file"], "lineno": int(found["line"]), "function": found["function"]}
        for found in _FRAME.finditer(failure.traceback)
    ]
    return {
        "level": level,
        "logger": "tidegate",
        "transaction": event.function,
        "fingerprint": ["{{ default }}", event.function, str(failure.reason)],
        "tags": _tags(event)
        | {"tidegate.verdict": str(failure.verdict), "tidegate.reason": str(failure.reason)},
        "contexts": {
            "tidegate": {
                "task_id": event.task_id,
                "run": event.run,
                "attempt": event.attempt,
                "max_attempts": event.max_attempts,
                "why": why,
                "status": failure.status,
                "request_id": failure.request_id,
            }
        },
        "exception": {
            "values": [
                {
                    "type": name or str(failure.reason),
                    "module": module or None,
                    "value": failure.message,
                    "mechanism": {"type": "tidegate", "handled": level != "error"},
                    "stacktrace": {"frames": frames} if frames else None,
                }
            ]
        },
    }


def _tags(event: RunStarted | RunFinished | TaskDied) -> dict[str, str]:
    tags = {
        "tidegate.task_id": event.task_id,
        "tidegate.function": event.function,
        "tidegate.queue": event.queue,
        "tidegate.run": str(event.run),
        "tidegate.tenant": event.tenant,
        "tidegate.upstream": event.upstream,
    }
    if event.trace is not None:
        tags["tidegate.trace_id"] = event.trace.trace_id
    return {name: value for name, value in tags.items() if value}


def _without_our_log_lines(event: Any, hint: Any) -> Any:
    """Drop what Sentry makes of our own log line of a dead task, which has its event already."""
    entry = event.get("logentry") or {}
    is_ours = event.get("logger") == "tidegate.worker" and str(entry.get("message", "")).startswith("dead: ")
    return None if is_ours else event
