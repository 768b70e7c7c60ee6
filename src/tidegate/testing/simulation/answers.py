"""What workers were given and told: claims and the answers to their outcomes, held against the commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.domain.outcome import Answer, Fence, Outcome, Released, Succeeded
from tidegate.domain.states import State
from tidegate.store.rows import Claim
from tidegate.testing.checker import Violation, digest_of
from tidegate.testing.simulation.journal import Commit, Journal
from tidegate.testing.simulation.runs import finishes
from tidegate.testing.simulation.told import Told


def answers_are_true(told: Told) -> Iterator[Violation]:
    """I9 and I10: each run ends once; who was told `done` has written it, who was told `fenced` has not."""
    ended: dict[Fence, tuple[Commit, Outcome]] = {}
    for commit, outcome, answer in finishes(told.journal):
        fence = outcome.fence
        before = ended.get(fence)
        if answer is Answer.DONE:
            if before is not None:
                yield Violation(
                    "I9",
                    fence.task_id,
                    f"run {fence.run} was ended twice, by {before[0].machine} and {commit.machine}",
                )
            ended[fence] = (commit, outcome)
        elif answer is Answer.ALREADY and before is None:
            yield Violation(
                "I10", fence.task_id, f"run {fence.run} was told `already`, but never ended before"
            )
        elif answer is Answer.FENCED and before is not None and before[1] == outcome:
            yield Violation(
                "I10", fence.task_id, f"the end of run {fence.run} was kept, a resend told `fenced`"
            )
    yield from _results_are_the_written_ones(told, ended)


def _results_are_the_written_ones(
    told: Told, ended: Mapping[Fence, tuple[Commit, Outcome]]
) -> Iterator[Violation]:
    for fence, (_, outcome) in ended.items():
        row = told.record.rows.get(fence.task_id)
        if not isinstance(outcome, Succeeded) or row is None:
            continue
        if row.state is not State.SUCCEEDED or told.record.results.get(fence.task_id) != digest_of(
            outcome.result
        ):
            yield Violation("I10", fence.task_id, f"run {fence.run} was told `done`, its result is not there")


def retired_workers_get_nothing(journal: Journal) -> Iterator[Violation]:
    """I8: a worker that was retired is given no run any more."""
    retired: set[str] = set()
    for commit in journal.commits:
        if commit.method == "retire_worker" and commit.answer:
            retired.add(commit.arguments[0])
        elif isinstance(commit.answer, Claim) and commit.arguments[0].worker_id in retired:
            for task in commit.answer.tasks:
                yield Violation(
                    "I8", task.fence.task_id, f"run {task.fence.run} was given to a retired worker"
                )


def released_claims_never_began(told: Told) -> Iterator[Violation]:
    """I12: a run that is given back because its claim was never answered has had no body."""
    started = {Fence(note.task_id, note.run) for note in told.journal.notes if note.event == "start"}
    for _, outcome, answer in finishes(told.journal):
        is_unanswered = isinstance(outcome, Released) and "never answered" in outcome.why
        if is_unanswered and answer is Answer.DONE and outcome.fence in started:
            yield Violation(
                "I12",
                outcome.fence.task_id,
                f"run {outcome.fence.run} was given back as never begun, but its body had started",
            )
