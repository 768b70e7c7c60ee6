"""Check a run: the history checker's invariants, and checks that need to know every commit and fault.

The history checker compares the clients' responses, the functions' notes and the contents of the store. The
checks here also use the commits and the faults: a fault must explain every loss, every response to a worker
must be true, and after the faults all tasks must end in time.
"""

from __future__ import annotations

from collections.abc import Iterator

from checker import RunLimits, Violation, check
from simulation.cancel_checks import cancels_stop_runs
from simulation.claim_checks import (
    finish_results_are_true,
    released_claims_never_began,
    retired_workers_get_nothing,
)
from simulation.claimed_runs import claimed_runs
from simulation.functions import task_functions
from simulation.loss_checks import losses_have_a_cause, only_stops_cut_short, orphans_are_found
from simulation.run_record import RunRecord
from simulation.unique_checks import unique_names_are_unique
from tidegate.domain.states import FINAL


def check_run(run_record: RunRecord) -> list[Violation]:
    """Return every broken invariant of a run; `uncaught` is what no code had caught."""
    event_log, snapshot = run_record.event_log, run_record.snapshot
    limits = {name: RunLimits.of(function.spec) for name, function in task_functions().items()}
    claimed = claimed_runs(event_log)
    return [
        *(Violation("uncaught", "", what) for what in dict.fromkeys(event_log.loop_errors)),
        *check(event_log.observations(), event_log.notes, snapshot, limits=limits),
        *unique_names_are_unique(snapshot, event_log.unique_names, event_log.commits),
        *retired_workers_get_nothing(event_log),
        *finish_results_are_true(run_record),
        *released_claims_never_began(run_record),
        *cancels_stop_runs(run_record, claimed),
        *losses_have_a_cause(run_record, claimed),
        *only_stops_cut_short(run_record, claimed),
        *orphans_are_found(run_record, claimed),
        *_all_finish_in_time(run_record),
        *_finals_stay(run_record),
        *(Violation("I20", "", f"integrity: {what}") for what in run_record.integrity_errors),
    ]


def _all_finish_in_time(run_record: RunRecord) -> Iterator[Violation]:
    """I13: after the last fault everything becomes final within the bound; stops end within theirs."""
    if run_record.final_after >= run_record.final_bound:
        open_tasks = [row.id for row in run_record.snapshot.rows.values() if row.state not in FINAL]
        yield Violation(
            "I13",
            open_tasks[0] if open_tasks else "",
            f"{len(open_tasks)} tasks are open {run_record.final_after:.0f} s after the last fault",
        )
    for task_id in run_record.waiting:
        yield Violation("I13", task_id, "is final, but the client that waits for its result was not notified")
    for drain in run_record.event_log.drains:
        lasts = drain.ended_at is None and drain.machine not in run_record.deaths
        if lasts and run_record.virtual_seconds - drain.began_at > run_record.final_bound:
            yield Violation("I13", "", f"the stop of {drain.machine} at {drain.began_at:.1f} never ended")


def _finals_stay(run_record: RunRecord) -> Iterator[Violation]:
    """I6: the final state that a client received is the one in the store at the end."""
    on_gone = run_record.event_log.observations().purged
    for task_id, (state, digest) in run_record.event_log.finals.items():
        row = run_record.snapshot.rows.get(task_id)
        if row is None:
            if task_id not in on_gone:
                yield Violation("I6", task_id, f"a client read that it is {state}, and it is not there")
        elif row.state is not state or run_record.snapshot.results.get(task_id, "") != digest:
            yield Violation("I6", task_id, f"a client read that it is {state}, the store says {row.state}")
