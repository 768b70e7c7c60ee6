"""Cancels of running tasks: where nothing hinders the worker, the body is stopped soon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.domain.outcome import Answer, Fence
from tidegate.store.rows import CancelAnswer
from tidegate.testing.checker import Violation
from tidegate.testing.simulation.runs import Held, finishes
from tidegate.testing.simulation.told import Told

_UNDER_WAY_SECONDS = 3.0
"""The question and the end may take so long on their way."""
_SWALLOW_LEASES = 0.4
"""The longest that a body goes on after it was told to stop."""


def cancels_are_obeyed(told: Told, held: Mapping[Fence, Held]) -> Iterator[Violation]:
    """I19: a run whose cancel was asked for ends within the bound, unless its machine was troubled."""
    bound = told.scene.timings.cancel_poll + _SWALLOW_LEASES * told.scene.lease + _UNDER_WAY_SECONDS
    for fence, asked_at, ended_at in asked_runs(told, held):
        end = asked_at + bound
        if ended_at > end and not _is_troubled(told, held[fence], end):
            yield Violation(
                "I19",
                fence.task_id,
                f"run {fence.run} on {held[fence].machine} went on for more than {bound:.1f} s after its"
                f" cancel at {asked_at:.1f}",
            )


def asked_runs(told: Told, held: Mapping[Fence, Held]) -> Iterator[tuple[Fence, float, float]]:
    """Yield the runs under way when their cancel was asked for, with that moment and that of their end."""
    ended_at = {
        outcome.fence: commit.at
        for commit, outcome, answer in finishes(told.journal)
        if answer is Answer.DONE
    }
    for commit in told.journal.commits:
        if commit.method != "cancel":
            continue
        asked = {task_id for task_id, answer in commit.answer.items() if answer is CancelAnswer.ASKED}
        for fence, run in held.items():
            end = ended_at.get(fence, float("inf"))
            if fence.task_id in asked and run.at <= commit.at < end:
                yield fence, commit.at, end


def _is_troubled(told: Told, run: Held, end: float) -> bool:
    """Return whether anything hindered the run's machine since the claim, or the run is over by then."""
    journal = told.journal
    return (
        end > told.virtual_seconds
        or told.deaths.get(run.machine, end) < end
        or any(fault.touches(run.machine, run.at - _UNDER_WAY_SECONDS, end) for fault in journal.faults)
        or any(drain.machine == run.machine and drain.began_at <= end for drain in journal.drains)
        or any(
            machine == run.machine and run.at - _UNDER_WAY_SECONDS <= at <= end
            for at, machine, _ in journal.hiccups
        )
    )
