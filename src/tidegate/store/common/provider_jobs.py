"""Jobs at providers, which tasks submit and poll, and how a task that ends cancels them first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from tidegate.domain.failure import MESSAGE_LIMIT, Reason
from tidegate.domain.outcome import Cancelled, Dead
from tidegate.domain.provider_job import CANCELLING_LABEL, UNFINISHED, CancelCause, JobState
from tidegate.store.common.outcomes import EndedRunRow, UnsuccessfulOutcome, cancels_first
from tidegate.store.common.session import Session
from tidegate.store.common.text import finite, storable
from tidegate.store.provider_job_rows import (
    FENCED,
    JobAnswer,
    JobBegin,
    JobEvent,
    JobItem,
    JobItems,
    JobReport,
    JobStatus,
    ProviderJobRow,
)

ITEMS_AT_ONCE = 200
"""Most items in one read."""
MOST_CANCEL_RUNS = 3
"""How many runs of a task try to cancel its jobs before it ends."""
_NOT_REACHED = "its task ended before it was cancelled"
_LONGEST_DELAY_SECONDS = 366 * 86_400.0
_POLLS = frozenset({JobEvent.PENDING, JobEvent.POLL_FAILED, JobEvent.DONE, JobEvent.UNFINISHED})
_ENDS = {
    JobEvent.DONE: JobState.DONE,
    JobEvent.FAILED: JobState.FAILED,
    JobEvent.TIMED_OUT: JobState.TIMED_OUT,
    JobEvent.CANCELLED: JobState.CANCELLED,
    JobEvent.CANCEL_FAILED: JobState.CANCEL_FAILED,
}


class _Job(NamedTuple):
    """The columns of a job that change, in the order of `save`."""

    state: str
    generation: int
    job_id: str
    run: int
    polls: int
    failed_polls: int
    begun_at: float
    submitted_at: float | None
    polled_at: float | None
    next_poll_at: float
    done: float | None
    total: float | None
    note: str
    error: str
    can_cancel: int
    cancel_requested_at: float | None
    ended_at: float | None
    codec: str
    data: bytes | None

    def answer(self, now: float) -> JobAnswer:
        """Return the job as its run gets it."""
        return JobAnswer(
            JobStatus.KNOWN,
            JobState(self.state),
            self.generation,
            self.job_id,
            self.polls,
            self.failed_polls,
            now - self.begun_at,
            self.next_poll_at - now,
            self.error,
            self.data,
            self.codec,
        )


async def begin_provider_job(db: Session, begin: JobBegin) -> JobAnswer:
    """Record that a run waits for a job; return what is recorded of it."""
    sql, now, task = db.sql("provider_jobs"), await db.now(), db.id(begin.fence.task_id)
    if not await _is_current(db, task, begin.fence.run):
        return FENCED
    key, can_cancel = storable(begin.key), int(begin.can_cancel)
    names = (storable(begin.name), storable(begin.provider))
    await db.run(sql["add"], task, key, *names, begin.fence.run, now, can_cancel)
    job = await _find(db, task, key)
    if job.ended_at is None:
        if job.can_cancel != can_cancel:
            job = job._replace(can_cancel=can_cancel)
            await _save(db, task, key, job)
    elif job.state != JobState.DONE and await db.value(sql["has_failed_since"], task, job.run) is not None:
        job = _begun_again(job, begin.fence.run, now)._replace(can_cancel=can_cancel)
        await _save(db, task, key, job)
    return job.answer(now)


async def record_provider_job(db: Session, report: JobReport) -> JobAnswer:
    """Record what a run reports of a job; return what is recorded now."""
    now, task, key = await db.now(), db.id(report.fence.task_id), storable(report.key)
    if not await _is_current(db, task, report.fence.run):
        return FENCED
    items = [(task, key, storable(each.item), storable(each.codec), each.data) for each in report.items]
    await db.run_each(db.sql("provider_jobs")["add_items"], items)
    job = await _find(db, task, key)
    is_waited_for = job.state in UNFINISHED and job.generation == report.generation
    if is_waited_for and report.event is not JobEvent.ITEMS:
        job = _after(job, report, now)
        await _save(db, task, key, job)
    return job.answer(now)


async def read_job_items(db: Session, wanted: JobItems) -> list[JobItem]:
    """Return some finished items of a job, ordered by their names; none after the last."""
    task = db.id(wanted.fence.task_id)
    rows = await db.rows(
        db.sql("provider_jobs")["items"], task, storable(wanted.key), wanted.after, ITEMS_AT_ONCE
    )
    return [JobItem(*row) for row in rows]


async def list_provider_jobs(db: Session, task_id: str) -> list[ProviderJobRow]:
    """Return the jobs of a task, in the order in which they were begun."""
    task = db.id(task_id)
    if task is None:
        return []
    rows = await db.rows(db.sql("provider_jobs")["list"], task)
    return [
        ProviderJobRow(key, name, provider, JobState(state), *rest)
        for key, name, provider, state, *rest in rows
    ]


def cancel_cause(run: EndedRunRow, outcome: UnsuccessfulOutcome) -> CancelCause | None:
    """Return why this outcome of a run must cancel the jobs of its task; None if it need not."""
    if isinstance(outcome, Dead):
        return CancelCause.DEADLINE if outcome.failure.reason is Reason.DEADLINE else None
    return CancelCause.REQUEST if isinstance(outcome, Cancelled) or run.cancel_requested else None


def may_have_to_cancel(run: EndedRunRow, outcome: UnsuccessfulOutcome) -> bool:
    """Return whether `cancel_before_end` has anything to do for this outcome."""
    return cancel_cause(run, outcome) is not None or _is_crash(outcome)


async def cancel_before_end(
    db: Session, now: float, task: Any, run: EndedRunRow, outcome: UnsuccessfulOutcome
) -> tuple[EndedRunRow, UnsuccessfulOutcome]:
    """Return the run and its outcome. A task that first has to cancel its jobs becomes ready instead.

    If `MOST_CANCEL_RUNS` runs have not come to the cancel, the task ends all the same.
    """
    sql, cause = db.sql("provider_jobs"), cancel_cause(run, outcome)
    if cause is not None:
        runs = 1
        if not await db.column(sql["ask"], db.array([task]), now):
            label = await db.value(sql["pending"], task, CANCELLING_LABEL)
            runs = MOST_CANCEL_RUNS + 1 if label is None else _run_number(label) + 1
        if runs <= MOST_CANCEL_RUNS:
            value = cause if runs == 1 else f"{cause} {runs}"
            await db.run(sql["label"], db.array([task]), CANCELLING_LABEL, value)
            return run._replace(cancel_requested=False), cancels_first(outcome)
    if may_have_to_cancel(run, outcome):
        await db.run(sql["give_up"], task, now, _NOT_REACHED)
        await db.run(sql["unlabel"], task, CANCELLING_LABEL)
    return run, outcome


async def cancel_waiting(db: Session, now: float, tasks: Collection[Any]) -> Iterable[Any]:
    """Make the tasks that have jobs to cancel due, and return them.

    Args:
        db: A session in a transaction.
        now: The current time.
        tasks: Tasks that are to be cancelled and do not run.
    """
    if not tasks:
        return ()
    sql = db.sql("provider_jobs")
    asked = set(await db.column(sql["ask_waiting"], db.array(tasks), now))
    if asked:
        await db.run(sql["label"], db.array(asked), CANCELLING_LABEL, CancelCause.REQUEST)
        await db.run(sql["wake"], db.array(asked), now)
    return asked


def _run_number(label: str) -> int:
    """Return the number of the run that a label such as `request 2` asks for."""
    number = label.rpartition(" ")[2]
    return int(number) if number.isdecimal() else 1


def _is_crash(outcome: UnsuccessfulOutcome) -> bool:
    return isinstance(outcome, Dead) and outcome.failure.reason is Reason.CRASH


async def _is_current(db: Session, task: Any, run: int) -> bool:
    if task is None:
        return False
    return await db.value(db.sql("provider_jobs")["is_current"], task, run) is not None


async def _find(db: Session, task: Any, key: str) -> _Job:
    row = await db.row(db.sql("provider_jobs")["find"], task, key)
    assert row is not None
    return _Job(*row)


async def _save(db: Session, task: Any, key: str, job: _Job) -> None:
    await db.run(db.sql("provider_jobs")["save"], task, key, *job)


def _begun_again(job: _Job, run: int, now: float) -> _Job:
    """Return a job that ended without a result, ready to be waited for again."""
    job = job._replace(
        run=run,
        failed_polls=0,
        begun_at=now,
        next_poll_at=now,
        error="",
        cancel_requested_at=None,
        ended_at=None,
    )
    if job.state == JobState.TIMED_OUT and not job.can_cancel:
        return job._replace(state=JobState.RUNNING if job.job_id else JobState.SUBMITTING)
    return _next_generation(job, now)


def _next_generation(job: _Job, now: float) -> _Job:
    return job._replace(
        state=JobState.SUBMITTING,
        generation=job.generation + 1,
        job_id="",
        failed_polls=0,
        begun_at=now,
        submitted_at=None,
        next_poll_at=now,
    )


def _after(job: _Job, report: JobReport, now: float) -> _Job:
    """Return a job after this report."""
    event = report.event
    delay = min(_LONGEST_DELAY_SECONDS, max(0.0, finite(report.delay_seconds, 0.0)))
    job = job._replace(
        job_id=storable(report.job_id) or job.job_id, run=report.fence.run, next_poll_at=now + delay
    )
    if event in _POLLS:
        is_failed = event is JobEvent.POLL_FAILED
        job = job._replace(
            polls=job.polls + 1, failed_polls=job.failed_polls + 1 if is_failed else 0, polled_at=now
        )
    if report.error or event is not JobEvent.POLL_FAILED:
        job = job._replace(error=storable(report.error[:MESSAGE_LIMIT]))
    if event is JobEvent.PENDING:
        note = storable(report.note[:MESSAGE_LIMIT])
        return job._replace(done=report.done, total=report.total, note=note)
    if event is JobEvent.SUBMITTED:
        return job._replace(state=JobState.RUNNING, submitted_at=now)
    if event is JobEvent.UNFINISHED:
        return _next_generation(job, now)
    if event in _ENDS:
        return job._replace(state=_ENDS[event], ended_at=now, data=report.data, codec=storable(report.codec))
    return job
