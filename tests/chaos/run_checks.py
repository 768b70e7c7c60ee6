"""Check a chaos run: all invariants of the harness, and what only faults that hit everyone can show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from chaos.faults import GlobalFault
from chaos.run_record import ChaosRecord
from checker import Violation
from harness.checks import Verdict, check_run
from harness.record import TaskRun


def check_chaos(record: ChaosRecord) -> Verdict:
    """Return every broken invariant of a run."""
    verdict = check_run(record)
    found = [
        *_global_faults_rerun_nothing(record),
        *_plan_was_kept(record),
    ]
    return replace(verdict, violations=(*verdict.violations, *found))


def taken_at(record: ChaosRecord, global_fault: GlobalFault) -> Iterator[TaskRun]:
    """Yield the runs that were in progress at a fault that hit everyone, and were taken from their worker."""
    for fence in sorted(global_fault.running):
        run = record.runs.get(fence)
        if run is not None and run.is_taken and (run.ended_at or inf) <= global_fault.observed_until:
            yield run


def _global_faults_rerun_nothing(record: ChaosRecord) -> Iterator[Violation]:
    """I12: no task is run again because the store was unreachable or everything was frozen."""
    for global_fault in record.fault_log.global_faults:
        for run in taken_at(record, global_fault):
            what = (
                f"run {run.fence.run} was under way at “{global_fault.fault}”, and was taken from its worker"
            )
            yield Violation("I12", run.fence.task_id, f"{what}: {run.why}")
        if global_fault.finished_after is None:
            yield Violation("I13", "", f"nothing was finished after “{global_fault.fault}”")


def _plan_was_kept(record: ChaosRecord) -> Iterator[Violation]:
    kills = record.fault_log.worker_kills
    if kills < record.plan.kills:
        yield Violation("plan", "", f"{kills} kills were done, {record.plan.kills} were planned")
