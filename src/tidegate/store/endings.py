"""What an end other than success means for a task: decided here, written by each back end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tidegate.codec.tags import CODEC
from tidegate.domain.failure import Failure, Reason
from tidegate.domain.outcome import Cancelled, Charge, Dead, Outcome, Released, Retrying, Succeeded
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.policy.gate import TELLING
from tidegate.policy.promotion import LAST_ATTEMPT, PLAIN, URGENT
from tidegate.store.columns import INTERRUPTIONS, rules_of
from tidegate.store.text import finite, storable, to_json

Ending = Retrying | Released | Dead | Cancelled

_FALLBACK_DELAY_SECONDS = 60.0
_NEXT_KEY_SECONDS = 0.25
"""After what one key met, until the task goes on with the next one."""


class Run(NamedTuple):
    """The row of a run that has just been ended."""

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
    """Whether it tried a held upstream."""


class Record(NamedTuple):
    """What an ending says, in stored words: the fields by which a resend is recognised."""

    outcome: str
    charge: str
    verdict: str
    reason: str
    error_class: str
    message: str
    why: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of a task whose run ended without success, and what is written of it."""

    state: State
    """Retrying, ready, dead or cancelled."""
    said: Record
    due_at: float | None
    """When it may run again; None: never."""
    rank: float
    """It will have then."""
    attempt: tuple[Any, ...]
    """The columns of its `attempt` row after the task's id, in the table's order."""
    budget: tuple[int, int, float, float | None]
    """For a retry: 1 if its next run spends retry budget, 1 if it may use the reserved part or 2 if it is
    the last attempt, now, and the moment before which the server wants none."""
    spent: tuple[Any, ...]
    """First start, then 1 or 0 to add to attempts, parks, crashes, losses and releases, the moment from which
    its total timeout stands still, and reason and message of the failure; None where nothing changes."""


def settle(now: float, run: Run, ending: Ending, *, has_next_key: bool = False) -> Settled:
    """Return what becomes of the task.

    A run that would go on, of a task whose cancel was requested, ends as cancelled. One that met what a
    single key lacks waits no longer than it takes to go on with the next.
    """
    said = record(ending, is_cancelled=bool(run.cancel_requested))
    if has_next_key and isinstance(ending, Retrying):
        delay = min(ending.delay_seconds, _NEXT_KEY_SECONDS)
        ending = replace(ending, delay_seconds=delay, failure=replace(ending.failure, wait_seconds=None))
    state, due_at, rank = _next(now, run, ending)
    return Settled(
        state,
        said,
        due_at,
        rank,
        _attempt(now, run, ending, said, due_at),
        _budget(now, run, ending),
        _spent(now, run, ending),
    )


def record(ending: Ending, *, is_cancelled: bool) -> Record:
    """Return what is stored of an ending's words."""
    failure = failure_of(ending)
    return Record(
        outcome=_word(ending, is_cancelled=is_cancelled),
        charge=str(charge_of(ending)),
        verdict="" if failure is None else str(failure.verdict),
        reason=_reason(ending, failure),
        error_class="" if failure is None else storable(failure.error_class),
        message="" if failure is None else storable(failure.message),
        why=storable(ending.why),
    )


def is_told_again(ending: Ending, kept: tuple[Any, ...] | None) -> bool:
    """Return whether a run's kept record says this very ending: the resend of one whose answer was lost.

    A worker whose run was taken up by the reaper says something else of it than the reaper did, so the
    words tell them apart where the run alone does not.
    """
    return kept in (record(ending, is_cancelled=False), record(ending, is_cancelled=True))


def with_placeholder(outcome: Outcome, error: Exception) -> Outcome:
    """Return the outcome with a stand-in for what cannot be stored, saying so."""
    what = f"could not be stored: {type(error).__name__}"
    if isinstance(outcome, Succeeded):
        return replace(outcome, result=f'"(the result {what})"'.encode(), codec_tag=CODEC)
    if isinstance(outcome, Retrying):
        failure = _plain(outcome.failure, what)
        return replace(outcome, failure=failure, why=f"(the reason {what})", rule="")
    if isinstance(outcome, Dead):
        return replace(outcome, failure=_plain(outcome.failure, what), why=f"(the reason {what})")
    return replace(outcome, why=f"(the reason {what})")


def place(now: float, task_id: Any, run: Run, number: int, settled: Settled) -> tuple[Any, ...]:
    """Return the values of the statement by which a back end puts a task into its next state.

    Args:
        now: The present moment.
        task_id: As the back end writes ids.
        run: The run that has ended.
        number: Its number.
        settled: What becomes of the task.
    """
    said, where = settled.said, (run.queue, run.priority, run.upstream, run.function, run.tenant)
    if settled.state is State.RETRYING:
        row = (task_id, settled.due_at, *where, settled.rank, number, said.why)
        return (*row, *settled.budget)
    if settled.state is State.READY:
        return (task_id, *where, settled.rank, now, number)
    if settled.state is State.DEAD:
        letter = (run.queue, run.function, run.tenant, said.reason, said.error_class, said.message)
        return (task_id, *letter, number, run.worker_id, run.started_at, now)
    return (task_id, number, run.worker_id, run.ready_at, run.started_at, now)


def name_to_free(run: Run, settled: Settled) -> str | None:
    """Return the unique name that this end gives back, if the task held one until its final state."""
    return run.unique_name if settled.state in (State.DEAD, State.CANCELLED) else None


def counted_name(ending: Ending) -> str:
    """Return the name under which an ending counts besides the task's counters; empty for none."""
    if isinstance(ending, Released):
        return INTERRUPTIONS if ending.charge in (Charge.INTERRUPTED, Charge.ATTEMPT) else ""
    return ending.rule if isinstance(ending, Retrying) else ""


def one_more(rule_attempts: str | None, rule: str) -> str | None:
    """Return the runs counted by name, as JSON, after one more under this name."""
    spent, name = rules_of(rule_attempts), storable(rule)
    return to_json(spent | {name: spent.get(name, 0) + 1})


def failure_of(ending: Ending) -> Failure | None:
    """Return the failure behind an ending, if one is."""
    return ending.failure if isinstance(ending, Retrying | Dead) else None


def charge_of(ending: Ending) -> Charge:
    """Return which counter an ending adds to."""
    return Charge.NOTHING if isinstance(ending, Cancelled) else ending.charge


def _next(now: float, run: Run, ending: Ending) -> tuple[State, float | None, float]:
    """Return the task's next state, when it is due, and its rank."""
    if isinstance(ending, Dead):
        return State.DEAD, None, 0.0
    if isinstance(ending, Cancelled) or run.cancel_requested:
        return State.CANCELLED, None, 0.0
    if isinstance(ending, Retrying):
        due_at = now + max(0.0, finite(ending.delay_seconds, _FALLBACK_DELAY_SECONDS))
        return State.RETRYING, due_at, due_at + finite(ending.rank_offset, 0.0)
    # It keeps its place: the rank counts from when it became ready before, the wait from now.
    return State.READY, now, min(run.ready_at, now) + finite(ending.rank_offset, 0.0)


def _word(ending: Ending, *, is_cancelled: bool) -> str:
    if isinstance(ending, Dead):
        return "dead"
    if is_cancelled or isinstance(ending, Cancelled):
        return "cancelled"
    return "retrying" if isinstance(ending, Retrying) else "released"


def _reason(ending: Ending, failure: Failure | None) -> str:
    if failure is not None:
        return str(failure.reason)
    return str(Reason.CANCELLED) if isinstance(ending, Cancelled) else ""


def _attempt(now: float, run: Run, ending: Ending, said: Record, due_at: float | None) -> tuple[Any, ...]:
    failure = failure_of(ending)
    evidence: tuple[Any, ...] = ("", None, "", "", "")
    if failure is not None:
        evidence = (
            storable(failure.traceback),
            failure.status,
            storable(failure.code),
            storable(failure.request_id),
            storable(failure.evidence),
        )
    head = (ending.fence.run, run.worker_id, run.started_at, now)
    return (*head, *said[:-1], *evidence, due_at, said.why)


def _budget(now: float, run: Run, ending: Ending) -> tuple[int, int, float, float | None]:
    if not isinstance(ending, Retrying):
        return 0, 0, now, None
    wait = ending.failure.wait_seconds
    floor_at = None if wait is None else now + max(0.0, finite(wait, 0.0))
    is_interactive = run.priority == Priority.INTERACTIVE
    urgent = LAST_ATTEMPT if ending.is_last else URGENT if is_interactive else PLAIN
    return int(not ending.is_free), urgent, now, floor_at


def shows_that_it_answers(ending: Ending) -> bool:
    """Whether a run without a signal failed by the answer of its upstream: that is alive then.

    A run that used transports shows nothing by its end: its calls have moved their gates.
    """
    failure = failure_of(ending)
    if failure is None or failure.status is None or failure.reason in TELLING or ending.calls.count:
        return False
    return charge_of(ending) is Charge.ATTEMPT


def _spent(now: float, run: Run, ending: Ending) -> tuple[Any, ...]:
    charge, failure = charge_of(ending), failure_of(ending)
    if charge is Charge.INTERRUPTED:
        charge = Charge.RELEASE  # shown as one; what makes it more is counted by name
    counted = (Charge.ATTEMPT, Charge.PARK, Charge.CRASH, Charge.LOSS, Charge.RELEASE)
    stands_still = charge in (Charge.PARK, Charge.WAIT)
    return (
        run.started_at,
        *(int(charge is each) for each in counted),
        now if stands_still else None,
        None if failure is None else str(failure.reason),
        None if failure is None else storable(failure.message),
    )


def _plain(failure: Failure, what: str) -> Failure:
    return Failure(failure.verdict, failure.reason, message=f"(the error {what})")
