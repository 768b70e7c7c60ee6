"""Compare the claims and finish responses that workers got with the committed transactions.

Only the simulation sees every commit; elsewhere there are none and these checks find nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from checker import Violation, digest_of
from harness.record import Commit, RunRecord
from tidegate.domain.outcome import Fence, FinishStatus, Outcome, Succeeded
from tidegate.domain.states import State
from tidegate.store.rows import ClaimResult


def finishes(commits: Sequence[Commit]) -> Iterator[tuple[Commit, Outcome, FinishStatus]]:
    """Yield every outcome that reached the store, with its response, received or not."""
    for commit in commits:
        if commit.method == "finish":
            for outcome, answer in zip(commit.arguments[0], commit.answer, strict=True):
                yield commit, outcome, answer


def finish_results_are_true(record: RunRecord) -> Iterator[Violation]:
    """I9 and I10: each run ends once; a `done` response was committed, a `fenced` one was not."""
    ended: dict[Fence, tuple[Commit, Outcome]] = {}
    for commit, outcome, answer in finishes(record.commits):
        fence = outcome.fence
        before = ended.get(fence)
        if answer is FinishStatus.DONE:
            if before is not None:
                who = f"by {before[0].machine} and {commit.machine}"
                yield Violation("I9", fence.task_id, f"run {fence.run} was ended twice, {who}")
            ended[fence] = (commit, outcome)
        elif answer is FinishStatus.ALREADY and before is None:
            what = f"run {fence.run} was answered `already`, but never ended before"
            yield Violation("I10", fence.task_id, what)
        elif answer is FinishStatus.FENCED and before is not None and before[1] == outcome:
            what = f"the end of run {fence.run} was kept, a resend was answered `fenced`"
            yield Violation("I10", fence.task_id, what)
    yield from _stored_results_match(record, {fence: outcome for fence, (_, outcome) in ended.items()})


def _stored_results_match(record: RunRecord, ended: Mapping[Fence, Outcome]) -> Iterator[Violation]:
    for fence, outcome in ended.items():
        row = record.snapshot.rows.get(fence.task_id)
        if not isinstance(outcome, Succeeded) or row is None:
            continue
        stored = record.snapshot.results.get(fence.task_id)
        if row.state is not State.SUCCEEDED or stored != digest_of(outcome.result):
            what = f"run {fence.run} was answered `done`, its result is not there"
            yield Violation("I10", fence.task_id, what)


def retired_workers_get_nothing(record: RunRecord) -> Iterator[Violation]:
    """I8: a worker that was retired is given no run any more."""
    retired: set[str] = set()
    for commit in record.commits:
        if commit.method == "retire_worker" and commit.answer:
            retired.add(commit.arguments[0])
        elif isinstance(commit.answer, ClaimResult) and commit.arguments[0].worker_id in retired:
            for task in commit.answer.tasks:
                what = f"run {task.fence.run} was given to a retired worker"
                yield Violation("I8", task.fence.task_id, what)
