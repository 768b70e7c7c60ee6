"""The log messages about runs and leases.

The messages never contain arguments or results, which may hold secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tidegate.context import StopReason
from tidegate.domain.failure import CallFailure, Reason, Verdict
from tidegate.domain.outcome import Cancelled, Dead, Fence, Outcome, Released, Retrying, Suspended
from tidegate.domain.text import format_duration
from tidegate.domain.trace import trace_id_of
from tidegate.errors import StoreError
from tidegate.store.rows import ClaimedTask
from tidegate.worker.log_formatters import PLAIN, RunMessage
from tidegate.worker.logs import log_runs

log = logging.getLogger("tidegate.worker")
_OUTCOMES = {Retrying: "failed", Suspended: "suspended", Cancelled: "cancelled"}
_seen_unknown: set[tuple[str, str]] = set()
_seen_changes: set[tuple[str, str]] = set()
_seen_without_process: set[str] = set()


def run_started(claimed: ClaimedTask) -> None:
    """Log at DEBUG level that a run started."""
    if log.isEnabledFor(logging.DEBUG):
        log.debug("started: %s %s, run %d", claimed.function, *claimed.fence, extra=PLAIN | _fields(claimed))


def runs_succeeded(runs: Sequence[tuple[ClaimedTask, float, str]]) -> None:
    """Log runs that succeeded, with their seconds and traces, each in one line at INFO level."""
    if runs and log.isEnabledFor(logging.INFO):
        log_runs(
            log,
            [
                RunMessage(
                    _end_of_run("succeeded", claimed, seconds),
                    *claimed.fence,
                    claimed.queue,
                    claimed.function,
                    trace_id,
                )
                for claimed, seconds, trace_id in runs
            ],
        )


def run_finished(claimed: ClaimedTask, outcome: Outcome, seconds: float = 0.0, trace_id: str = "") -> None:
    """Log how a run that did not succeed ended, in one line: ERROR for a dead task, INFO for a normal end."""
    fields = _fields(claimed, trace_id)
    failed_outcome(claimed.function, outcome, fields)
    if isinstance(outcome, Dead | Released):
        return
    message = _end_of_run(_OUTCOMES.get(type(outcome), "ended"), claimed, seconds)
    log.info("%s: %s", message, getattr(outcome, "why", ""), extra=fields)


def _end_of_run(how: str, claimed: ClaimedTask, seconds: float) -> str:
    task_id, run = claimed.fence
    return f"{how}: {claimed.function} {task_id}, run {run}, after {format_duration(seconds)}"


def _fields(claimed: ClaimedTask, trace_id: str = "") -> dict[str, object]:
    fields: dict[str, object] = {
        "task_id": claimed.fence.task_id,
        "run": claimed.fence.run,
        "queue": claimed.queue,
        "function": claimed.function,
    }
    if trace_id := trace_id or trace_id_of(claimed.labels):
        fields["trace_id"] = trace_id
    return fields


def failed_outcome(function: str, outcome: Outcome, fields: Mapping[str, object] | None = None) -> None:
    """Log outcomes that may need attention: each dead task, and each kind of unknown failure once.

    Args:
        function: The task function.
        outcome: The outcome of its run.
        fields: The fields of the log records; None if the message contains them all.
    """
    if isinstance(outcome, Dead):
        failure = outcome.failure
        log.error(
            "dead: %s %s after run %d: %s (%s: %s)",
            function,
            outcome.fence.task_id,
            outcome.fence.run,
            outcome.why,
            failure.error_class or failure.reason,
            failure.message[:200],
            extra=fields,
        )
    elif isinstance(outcome, Released):
        log.info("released: %s %s, run %d: %s", function, *outcome.fence, outcome.why, extra=fields)
    elif isinstance(outcome, Retrying) and outcome.failure.reason is Reason.CRASH:
        log.warning("crashed: %s %s, run %d: %s", function, *outcome.fence, outcome.why, extra=fields)
    elif isinstance(outcome, Retrying) and outcome.failure.verdict is Verdict.UNKNOWN:
        kind = (function, outcome.failure.error_class)
        if kind not in _seen_unknown:
            _seen_unknown.add(kind)
            log.warning(
                "unknown failure: %s raised %s (%s); it is retried. Logged once; classify it in retry=[…]",
                function,
                outcome.failure.error_class or outcome.failure.reason,
                outcome.failure.message[:200],
            )


def upstream_parked(upstream: str, call_failure: CallFailure) -> None:
    """Log that an upstream is parked until a person opens it."""
    log.error(
        "upstream %s is parked until a person opens it (%s: %s); its tasks wait. Fix the account or "
        "key, then: tidegate upstreams open %s",
        upstream,
        call_failure.reason,
        call_failure.message[:200],
        upstream,
    )


def limits_set_by_hand(upstream: str, differences: Mapping[str, str]) -> None:
    """Log that limits which a person set override those that this process declares."""
    log.warning(
        "upstream %s: limits that a person set override the code: %s. To follow the code again: "
        "tidegate upstreams set %s %s",
        upstream,
        "; ".join(differences.values()),
        upstream,
        " ".join(f"{name}=code" for name in differences),
    )


def limits_changed(name: str, changes: Sequence[str]) -> None:
    """Log that the limits which this process declares replaced others."""
    log.info("limits of %s: %s, as declared here", name or "the whole system", "; ".join(changes))


def timeout_too_short(function: str, timeout: float, call_seconds: float) -> None:
    """Log that a task's timeout is shorter than its call may take: the call's timeout never applies."""
    log.warning(
        "%s: its timeout of %g s is not longer than the %g s that one call to its upstream may take. "
        "Raise the timeout, or set times=CallTimes(seconds=…) for the upstream",
        function,
        timeout,
        call_seconds,
    )


def finish_refused(fence: Fence) -> None:
    """Log that the store refused a run's outcome because the task was requeued meanwhile."""
    log.warning(
        "fenced: run %d of %s ended after its task was requeued; nothing was written",
        fence.run,
        fence.task_id,
    )


def function_did_not_stop(task: ClaimedTask, stop: StopReason | None, left: str) -> None:
    """Log that a function did not stop; `left` describes what still runs."""
    log.warning(
        "%s %s did not stop (%s) within its grace time; its run is closed, but the %s keeps running",
        task.function,
        task.fence.task_id,
        stop.value if stop else "?",
        left,
    )


def child_killed(task: ClaimedTask, pid: int, stop: StopReason | None) -> None:
    """Log that a child process is killed because the function in it did not stop."""
    log.warning(
        "child process %d is killed: %s %s, run %d, did not stop (%s) within its grace time",
        pid,
        task.function,
        *task.fence,
        stop.value if stop else "?",
    )


def replacement_wanted(task: ClaimedTask, reason: str, *, can_be_replaced: bool) -> None:
    """Log that a task asked for its process to be replaced."""
    if can_be_replaced:
        log.info("%s %s, run %d: its process is replaced: %s", task.function, *task.fence, reason)
    else:
        log.warning(
            "%s %s, run %d, wants its process replaced, which an embedded worker cannot do: %s",
            task.function,
            *task.fence,
            reason,
        )


def process_state_changed(function: str, restored: Sequence[str], lost: Sequence[str]) -> None:
    """Log that a task changed process-wide state. Restored changes are logged once per function and kind."""
    new = [what for what in restored if (function, what) not in _seen_changes]
    if new:
        _seen_changes.update((function, what) for what in new)
        log.info(
            "%s changed %s of its process; the change was undone. Make lasting changes in a start hook",
            function,
            ", ".join(new),
        )
    if lost:
        log.warning(
            "%s changed %s of its process; the change cannot be undone, so the process is replaced",
            function,
            ", ".join(lost),
        )


def will_retry(what: str, error: Exception, pause: float) -> None:
    """Log that a step failed and is retried: the store is unreachable, or an unexpected error occurred."""
    if isinstance(error, StoreError):
        log.warning("%s: the store is unreachable (%s); retrying in %.1f s", what, error, pause)
    else:
        log.error("%s failed; retrying in %.1f s", what, pause, exc_info=error)


def outcome_unwritable(outcome: Outcome, fault: Exception) -> None:
    """Log that the store cannot write a run's outcome, so that its task is dead instead."""
    log.error(
        "dead: %s after run %d: its outcome (%s) cannot be stored",
        outcome.fence.task_id,
        outcome.fence.run,
        type(outcome).__name__,
        exc_info=fault,
    )


def no_child_processes(function: str) -> None:
    """Log, once per function, that a function meant for a child process runs without one."""
    if function not in _seen_without_process:
        _seen_without_process.add(function)
        log.warning(
            "%s cannot be stopped by force here: an embedded worker has no child processes. Run it with "
            "`tidegate worker` to give it one",
            function,
        )


def stop_hook_failed(hook: object, error: Exception) -> None:
    """Log that a stop hook raised."""
    log.error("the stop hook %s failed", getattr(hook, "__qualname__", hook), exc_info=error)


def lease_lost(worker_id: str) -> None:
    """Log that another process retired this worker."""
    log.error(
        "worker %s was retired by another process; its runs are stopped and their outcomes are not written",
        worker_id,
    )
