"""Compare the claims and finish responses that workers got with the committed transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checker import Violation, digest_of
from simulation.claimed_runs import finishes
from simulation.event_log import Commit, EventLog
from simulation.run_record import RunRecord
from tidegate.domain.outcome import Fence, FinishStatus, Outcome, Released, Succeeded
from tidegate.domain.states import State
from tidegate.store.rows import ClaimResult


def finish_results_are_true(run_record: RunRecord) -> Iterator[Violation]:
    """I9 and I10: each run ends once; a `done` response was committed, a `fenced` one was not."""
    ended: dict[Fence, tuple[Commit, Outcome]] = {}
    for commit, outcome, answer in finishes(run_record.event_log):
        fence = outcome.fence
        before = ended.get(fence)
        if answer is FinishStatus.DONE:
            if before is not None:
                yield Violation(
                    "I9",
                    fence.task_id,
                    f"run {fence.run} was ended twice, by {before[0].machine} and {commit.machine}",
                )
            ended[fence] = (commit, outcome)
        elif answer is FinishStatus.ALREADY and before is None:
            yield Violation(
                "I10", fence.task_id, f"run {fence.run} was answered `already`, but never ended before"
            )
        elif answer is FinishStatus.FENCED and before is not None and before[1] == outcome:
            yield Violation(
                "I10", fence.task_id, f"the end of run {fence.run} was kept, a resend was answered `fenced`"
            )
    yield from _stored_results_match(run_record, ended)


def _stored_results_match(
    run_record: RunRecord, ended: Mapping[Fence, tuple[Commit, Outcome]]
) -> Iterator[Violation]:
    for fence, (_, outcome) in ended.items():
        row = run_record.snapshot.rows.get(fence.task_id)
        if not isinstance(outcome, Succeeded) or row is None:
            continue
        if row.state is not State.SUCCEEDED or run_record.snapshot.results.get(fence.task_id) != digest_of(
            outcome.result
        ):
            yield Violation(
                "I10", fence.task_id, f"run {fence.run} was answered `done`, its result is not there"
            )


def retired_workers_get_nothing(event_log: EventLog) -> Iterator[Violation]:
    """I8: a worker that was retired is given no run any more."""
    retired: set[str] = set()
    for commit in event_log.commits:
        if commit.method == "retire_worker" and commit.answer:
            retired.add(commit.arguments[0])
        elif isinstance(commit.answer, ClaimResult) and commit.arguments[0].worker_id in retired:
            for task in commit.answer.tasks:
                yield Violation(
                    "I8", task.fence.task_id, f"run {task.fence.run} was given to a retired worker"
                )


def released_claims_never_began(run_record: RunRecord) -> Iterator[Violation]:
    """I12: a run that is released because its claim got no response never started its function."""
    started = {Fence(note.task_id, note.run) for note in run_record.event_log.notes if note.event == "start"}
    for _, outcome, answer in finishes(run_record.event_log):
        is_unanswered = isinstance(outcome, Released) and "never answered" in outcome.why
        if is_unanswered and answer is FinishStatus.DONE and outcome.fence in started:
            yield Violation(
                "I12",
                outcome.fence.task_id,
                f"run {outcome.fence.run} was released as never started, but its function had started",
            )
