"""Decide what an outcome other than success means for a task. Each back end writes the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tidegate.codec.tags import CODEC
from tidegate.domain.failure import GATE_REASONS, Failure, Reason, Verdict
from tidegate.domain.fingerprint import Fingerprint, fingerprint_of
from tidegate.domain.outcome import (
    Cancelled,
    Charge,
    Dead,
    Outcome,
    Released,
    Retrying,
    Succeeded,
    Suspended,
)
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.limits.promotion import LAST_ATTEMPT, PLAIN, URGENT
from tidegate.store.common.columns import INTERRUPTIONS, decode_rule_counts
from tidegate.store.common.text import finite, storable, to_json

UnsuccessfulOutcome = Retrying | Released | Suspended | Dead | Cancelled

_FALLBACK_DELAY_SECONDS = 60.0
KEPT_SUSPENSIONS = 20
"""The history keeps the suspensions of this many of a task's latest runs: some tasks suspend very often."""
_CANCELS_FIRST = "cancels its provider jobs first"
"""The note on a run whose task runs once more before it ends."""
_NEXT_KEY_SECONDS = 0.25
"""Wait until a task continues with the next key, after its key failed."""


class EndedRunRow(NamedTuple):
    """The stored row of a run that has just ended."""

    worker_id: str
    queue: str
    priority: int
    upstream: str
    function: str
    tenant: str
    ready_at: float
    started_at: float
    unique_name: str | None
    cancel_requested: bool | int
    probe: bool | int = 0
    """Whether the run was a probe."""
    has_on_final: bool | int = 0
    """Whether the task's final state enqueues another task."""
    since_at: float | None = None
    """When the run's task was enqueued or last redriven; None if an older version started the run."""


class AttemptRecord(NamedTuple):
    """The stored fields of an outcome. A resend is recognised by them."""

    outcome: str
    charge: str
    verdict: str
    reason: str
    error_class: str
    message: str
    why: str


@dataclass(frozen=True, slots=True)
class TaskTransition:
    """The next state of a task whose run ended without success, and the values to write for the task."""

    state: State
    """The next state: retrying, ready, suspended, dead or cancelled."""
    attempt_record: AttemptRecord
    due_at: float | None
    """When the task may run again; None: never, or not until something else wakes it."""
    rank: float
    """The rank the task will have when it is due."""
    attempt_row: tuple[Any, ...]
    """The columns of the run's `attempt` row after the task's id, in the table's order."""
    budget_columns: tuple[int, int, float, float | None]
    """How a retry uses the retry budget.

    The parts are: 1 if the next run spends budget, else 0; `PLAIN`, `URGENT` or `LAST_ATTEMPT` of
    `limits.promotion`; the current time; the moment before which the server wants no call, or None.
    """
    counter_changes: tuple[Any, ...]
    """In this order: the moment of the first start; 1 or 0 to add to each of attempts, parks, crashes, losses
    and releases; the moment from which the total timeout is paused; reason and message of the failure. None
    leaves a value unchanged."""
    fingerprint: Fingerprint | None
    """The fingerprint of a death or of a failure that no rule classified; None otherwise."""


def plan_transition(
    now: float, run: EndedRunRow, outcome: UnsuccessfulOutcome, *, has_next_key: bool = False
) -> TaskTransition:
    """Return the task's next state.

    If the task's cancel was requested and the task would run again, it is cancelled instead. If only one key
    of several failed (`has_next_key`), the task waits just long enough to continue with the next key.
    """
    attempt_record = build_attempt_record(outcome, is_cancelled=bool(run.cancel_requested))
    if has_next_key and isinstance(outcome, Retrying):
        delay = min(outcome.delay_seconds, _NEXT_KEY_SECONDS)
        outcome = replace(outcome, delay_seconds=delay, failure=replace(outcome.failure, wait_seconds=None))
    state, due_at, rank = _next_state(now, run, outcome)
    fingerprint = _fingerprint(outcome)
    return TaskTransition(
        state,
        attempt_record,
        due_at,
        rank,
        _attempt_row(now, run, outcome, attempt_record, due_at, fingerprint),
        _budget_columns(now, run, outcome),
        _counter_changes(now, run, outcome),
        fingerprint,
    )


def build_attempt_record(outcome: UnsuccessfulOutcome, *, is_cancelled: bool) -> AttemptRecord:
    """Return the stored fields of an outcome."""
    failure = get_failure(outcome)
    return AttemptRecord(
        outcome=_outcome_name(outcome, is_cancelled=is_cancelled),
        charge=str(get_charge(outcome)),
        verdict="" if failure is None else str(failure.verdict),
        reason=_reason(outcome, failure),
        error_class="" if failure is None else storable(failure.error_class),
        message="" if failure is None else storable(failure.message),
        why=storable(outcome.why),
    )


def is_resend(outcome: UnsuccessfulOutcome, kept: tuple[Any, ...] | None) -> bool:
    """Return whether a run's stored record is of this outcome, which means that the worker sent it again.

    The reaper may have ended the run with another outcome before its worker did. Then both outcomes have the
    same run number, but their other fields differ.
    """
    return kept in (
        build_attempt_record(outcome, is_cancelled=False),
        build_attempt_record(outcome, is_cancelled=True),
        build_attempt_record(cancels_first(outcome), is_cancelled=False),
    )


def cancels_first(outcome: UnsuccessfulOutcome) -> Released:
    """Return the outcome of a run whose task runs once more, to cancel its provider jobs, before it ends."""
    return Released(outcome.fence, _CANCELS_FIRST, charge=Charge.NOTHING, calls=outcome.calls)


def with_placeholder(outcome: Outcome, error: Exception) -> Outcome:
    """Return the outcome with a placeholder for the part that cannot be stored."""
    what = f"could not be stored: {type(error).__name__}"
    if isinstance(outcome, Succeeded):
        return outcome._replace(result=f'"(the result {what})"'.encode(), codec_tag=CODEC)
    if isinstance(outcome, Retrying):
        failure = _without_text(outcome.failure, what)
        return replace(outcome, failure=failure, why=f"(the reason {what})", rule="")
    if isinstance(outcome, Dead):
        return replace(outcome, failure=_without_text(outcome.failure, what), why=f"(the reason {what})")
    return replace(outcome, why=f"(the reason {what})")


def next_state_row(
    now: float, task_id: Any, run: EndedRunRow, number: int, transition: TaskTransition
) -> tuple[Any, ...]:
    """Return the parameters of the statement that puts a task into its next state.

    Args:
        now: The current time.
        task_id: The id in the back end's stored form.
        run: The run that has ended.
        number: The number of the run.
        transition: The task's next state.
    """
    attempt_record, where = (
        transition.attempt_record,
        (run.queue, run.priority, run.upstream, run.function, run.tenant),
    )
    if transition.state is State.RETRYING:
        row = (task_id, transition.due_at, *where, transition.rank, number, attempt_record.why)
        return (*row, *transition.budget_columns)
    if transition.state is State.SUSPENDED:
        return (task_id, transition.due_at, *where, transition.rank, number, attempt_record.why, now)
    if transition.state is State.READY:
        return (task_id, *where, transition.rank, now, number)
    if transition.state is State.DEAD:
        letter = (
            run.queue,
            run.function,
            run.tenant,
            attempt_record.reason,
            attempt_record.error_class,
            attempt_record.message,
        )
        fingerprint = None if transition.fingerprint is None else transition.fingerprint.id
        return (task_id, *letter, number, run.worker_id, run.started_at, now, fingerprint)
    return (task_id, number, run.worker_id, run.ready_at, run.started_at, now)


def unique_name_to_free(run: EndedRunRow, transition: TaskTransition) -> str | None:
    """Return the unique name that this outcome frees; None if it frees no name."""
    return run.unique_name if transition.state in (State.DEAD, State.CANCELLED) else None


def rule_counter_name(outcome: UnsuccessfulOutcome) -> str:
    """Return the name of the extra counter that this outcome raises; empty if it raises no such counter."""
    if isinstance(outcome, Released):
        return INTERRUPTIONS if outcome.charge in (Charge.INTERRUPTED, Charge.ATTEMPT) else ""
    return outcome.rule if isinstance(outcome, Retrying) else ""


def increment_rule_count(rule_attempts: str | None, rule: str) -> str | None:
    """Return the counts by name, as JSON, after adding 1 to the count of this name."""
    counter_changes, name = decode_rule_counts(rule_attempts), storable(rule)
    return to_json(counter_changes | {name: counter_changes.get(name, 0) + 1})


def last_forgotten_suspension(outcome: UnsuccessfulOutcome) -> int:
    """Return the run up to which the records of suspensions are deleted; 0 if none is."""
    return max(0, outcome.fence.run - KEPT_SUSPENSIONS) if isinstance(outcome, Suspended) else 0


def get_failure(outcome: UnsuccessfulOutcome) -> Failure | None:
    """Return the failure of an outcome; None if it has none."""
    return outcome.failure if isinstance(outcome, Retrying | Dead) else None


def get_charge(outcome: UnsuccessfulOutcome) -> Charge:
    """Return the counter that an outcome adds to."""
    if isinstance(outcome, Suspended):
        return Charge.SUSPENSION
    return Charge.NOTHING if isinstance(outcome, Cancelled) else outcome.charge


def _next_state(
    now: float, run: EndedRunRow, outcome: UnsuccessfulOutcome
) -> tuple[State, float | None, float]:
    """Return the task's next state, when it is due, and its rank."""
    if isinstance(outcome, Dead):
        return State.DEAD, None, 0.0
    if isinstance(outcome, Cancelled) or run.cancel_requested:
        return State.CANCELLED, None, 0.0
    if isinstance(outcome, Retrying):
        due_at = now + max(0.0, finite(outcome.delay_seconds, _FALLBACK_DELAY_SECONDS))
        return State.RETRYING, due_at, due_at + finite(outcome.rank_offset, 0.0)
    if isinstance(outcome, Suspended):
        offset = finite(outcome.rank_offset, 0.0)
        if outcome.delay_seconds is None:
            return State.SUSPENDED, None, now + offset
        due_at = now + max(0.0, finite(outcome.delay_seconds, _FALLBACK_DELAY_SECONDS))
        return State.SUSPENDED, due_at, due_at + offset
    # The task keeps its place in the queue: its rank counts from when it first became ready, its wait from
    # now.
    return State.READY, now, min(run.ready_at, now) + finite(outcome.rank_offset, 0.0)


def _outcome_name(outcome: UnsuccessfulOutcome, *, is_cancelled: bool) -> str:
    if isinstance(outcome, Dead):
        return "dead"
    if is_cancelled or isinstance(outcome, Cancelled):
        return "cancelled"
    # A suspension is a run released at its own request, and is distinguished by its charge.
    return "retrying" if isinstance(outcome, Retrying) else "released"


def _fingerprint(outcome: UnsuccessfulOutcome) -> Fingerprint | None:
    failure = get_failure(outcome)
    if failure is None or not (isinstance(outcome, Dead) or failure.verdict is Verdict.UNKNOWN):
        return None
    return storable_fingerprint(failure)


def storable_fingerprint(failure: Failure) -> Fingerprint:
    """Return the fingerprint of a failure, with texts that every store can keep."""
    found = fingerprint_of(failure)
    return Fingerprint(found.id, storable(found.error_class), storable(found.shape), storable(found.frame))


def _reason(outcome: UnsuccessfulOutcome, failure: Failure | None) -> str:
    if failure is not None:
        return str(failure.reason)
    return str(Reason.CANCELLED) if isinstance(outcome, Cancelled) else ""


def _attempt_row(
    now: float,
    run: EndedRunRow,
    outcome: UnsuccessfulOutcome,
    attempt_record: AttemptRecord,
    due_at: float | None,
    fingerprint: Fingerprint | None,
) -> tuple[Any, ...]:
    failure = get_failure(outcome)
    evidence: tuple[Any, ...] = ("", None, "", "", "")
    if failure is not None:
        evidence = (
            storable(failure.traceback),
            failure.status,
            storable(failure.code),
            storable(failure.request_id),
            storable(failure.evidence),
        )
    head = (outcome.fence.run, run.worker_id, run.started_at, now)
    name = None if fingerprint is None else fingerprint.id
    return (*head, *attempt_record[:-1], *evidence, due_at, attempt_record.why, name)


def _budget_columns(
    now: float, run: EndedRunRow, outcome: UnsuccessfulOutcome
) -> tuple[int, int, float, float | None]:
    if not isinstance(outcome, Retrying):
        return 0, 0, now, None
    wait = outcome.failure.wait_seconds
    floor_at = None if wait is None else now + max(0.0, finite(wait, 0.0))
    is_interactive = run.priority == Priority.INTERACTIVE
    urgent = LAST_ATTEMPT if outcome.is_last else URGENT if is_interactive else PLAIN
    return int(not outcome.is_free), urgent, now, floor_at


def proves_upstream_answers(outcome: UnsuccessfulOutcome) -> bool:
    """Return whether the failure of a run shows that its upstream answers.

    False for a run whose calls went through transports: those calls have updated their gates already.
    """
    failure = get_failure(outcome)
    if failure is None or failure.status is None or failure.reason in GATE_REASONS or outcome.calls.count:
        return False
    return get_charge(outcome) is Charge.ATTEMPT


def _counter_changes(now: float, run: EndedRunRow, outcome: UnsuccessfulOutcome) -> tuple[Any, ...]:
    charge, failure = get_charge(outcome), get_failure(outcome)
    if charge is Charge.INTERRUPTED:
        charge = Charge.RELEASE  # shown as a release; the details are counted by name
    counted = (Charge.ATTEMPT, Charge.PARK, Charge.CRASH, Charge.LOSS, Charge.RELEASE)
    stands_still = charge in (Charge.PARK, Charge.WAIT, Charge.SUSPENSION)
    return (
        run.started_at,
        *(int(charge is each) for each in counted),
        now if stands_still else None,
        None if failure is None else str(failure.reason),
        None if failure is None else storable(failure.message),
    )


def _without_text(failure: Failure, what: str) -> Failure:
    return Failure(failure.verdict, failure.reason, message=f"(the error {what})")
