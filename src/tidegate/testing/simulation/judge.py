"""Judges a run: the history checker's invariants, and what only someone who saw everything can tell.

The checker holds what clients were told, what bodies wrote down and what the store says against each other.
Here the commits and the faults come in as well: every loss must have a fault behind it, every answer a
worker got must be true, and after the faults everything must end in time.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.domain.states import FINAL
from tidegate.testing.checker import Limits, Violation, check
from tidegate.testing.simulation.answers import (
    answers_are_true,
    released_claims_never_began,
    retired_workers_get_nothing,
)
from tidegate.testing.simulation.bodies import task_functions
from tidegate.testing.simulation.cancels import cancels_are_obeyed
from tidegate.testing.simulation.losses import losses_have_a_fault, only_stops_cut_short, orphans_are_found
from tidegate.testing.simulation.runs import held_runs
from tidegate.testing.simulation.told import Told
from tidegate.testing.simulation.unique import live_names_are_unique


def judge(told: Told) -> list[Violation]:
    """Return every broken invariant of a run; `uncaught` is what no code had caught."""
    journal, record = told.journal, told.record
    limits = {name: Limits.of(function.spec) for name, function in task_functions().items()}
    held = held_runs(journal)
    return [
        *(Violation("uncaught", "", what) for what in dict.fromkeys(journal.loop_errors)),
        *check(journal.told(), journal.notes, record, limits=limits),
        *live_names_are_unique(record, journal.unique_names, journal.commits),
        *retired_workers_get_nothing(journal),
        *answers_are_true(told),
        *released_claims_never_began(told),
        *cancels_are_obeyed(told, held),
        *losses_have_a_fault(told, held),
        *only_stops_cut_short(told, held),
        *orphans_are_found(told, held),
        *_all_ends_in_time(told),
        *_finals_stay(told),
        *(Violation("I20", "", f"integrity: {what}") for what in told.faults_in_store),
    ]


def _all_ends_in_time(told: Told) -> Iterator[Violation]:
    """I13: after the last fault everything becomes final within the bound; stops end within theirs."""
    if told.settled_after >= told.settle_bound:
        open_tasks = [row.id for row in told.record.rows.values() if row.state not in FINAL]
        yield Violation(
            "I13",
            open_tasks[0] if open_tasks else "",
            f"{len(open_tasks)} tasks are open {told.settled_after:.0f} s after the last fault",
        )
    for task_id in told.waiting:
        yield Violation("I13", task_id, "is final, but who waits for its result was not told")
    for drain in told.journal.drains:
        lasts = drain.ended_at is None and drain.machine not in told.deaths
        if lasts and told.virtual_seconds - drain.began_at > told.settle_bound:
            yield Violation("I13", "", f"the stop of {drain.machine} at {drain.began_at:.1f} never ended")


def _finals_stay(told: Told) -> Iterator[Violation]:
    """I6: what a client was told of a final task is what the store says in the end."""
    gone = told.journal.told().purged
    for task_id, (state, digest) in told.journal.finals.items():
        row = told.record.rows.get(task_id)
        if row is None:
            if task_id not in gone:
                yield Violation("I6", task_id, f"a client was told that it is {state}, and it is not there")
        elif row.state is not state or told.record.results.get(task_id, "") != digest:
            yield Violation(
                "I6", task_id, f"a client was told that it is {state}, the store says {row.state}"
            )
