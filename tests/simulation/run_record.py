"""Make the record of a simulated run from its event log: from its commits, which show more than the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checker import RunLimits, StoreSnapshot
from harness.commit_checks import finishes
from harness.record import UNKNOWN_WORKER, RunRecord, TaskRun, WorkerLife
from harness.relations import Relations, StoredMap, derived_tasks
from simulation.event_log import EventLog
from simulation.functions import task_functions
from simulation.plan import SimulationPlan, SimulationSetup
from simulation.user_code_faults import INJECTED_ERROR
from tidegate.domain.outcome import Dead, Fence, FinishStatus, Outcome, Released, Retrying
from tidegate.store.rows import CancelStatus, ClaimResult


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRecord(RunRecord):
    """The record of a simulated run. Times are virtual seconds."""

    plan: SimulationPlan
    setup: SimulationSetup
    injected: Counter[str]
    crashes: int
    machines: int
    """Machines on which a worker started."""
    steps: int


def make_record(
    event_log: EventLog,
    setup: SimulationSetup,
    *,
    snapshot: StoreSnapshot,
    maps: Sequence[StoredMap],
    deaths: Mapping[str, float],
    open_at_end: int,
    **facts: Any,
) -> SimulationRecord:
    """Return the record of a run that is over now.

    Args:
        event_log: Everything that happened.
        setup: What the seed made of the plan.
        snapshot: The contents of the store.
        maps: The maps in the store.
        deaths: When machines died, or their process ended by itself.
        open_at_end: Tasks that were open when the faults ended.
        facts: The other members of the record.
    """
    started = event_log.worker_started_at
    observations = event_log.observations()
    relations = Relations(
        event_log.sent_maps, maps, event_log.edges, event_log.events, event_log.waits, observations.purged
    )
    derived = tuple(derived_tasks(relations, snapshot))
    return SimulationRecord(
        setup=setup,
        injected=event_log.injected,
        crashes=event_log.crashes,
        machines=len(started),
        observations=replace(observations, submitted=(*observations.submitted, *derived)),
        snapshot=snapshot,
        relations=relations,
        finals=tuple(event_log.finals.values()),
        cancelling=frozenset(event_log.cancelling),
        cancel_requests=_cancel_requests(event_log),
        unique_names=event_log.unique_names,
        became_visible_at=_became_visible_at(event_log),
        injected_error=INJECTED_ERROR,
        limits={name: RunLimits.of(function.spec) for name, function in task_functions().items()},
        notes=event_log.notes,
        runs=_runs(event_log),
        workers={
            worker_id: WorkerLife(machine, started[machine], deaths.get(machine, float("inf")))
            for worker_id, machine in event_log.workers.items()
            if machine in started
        },
        fault_log=event_log.fault_log,
        commits=event_log.commits,
        bounds=setup.bounds(open_at_end),
        is_virtual=True,
        open_at_end=open_at_end,
        ended_at=event_log.now(),
        **facts,
    )


def _runs(event_log: EventLog) -> dict[Fence, TaskRun]:
    """Return every claimed run, also those whose claim got no response, and those of purged tasks."""
    runs: dict[Fence, TaskRun] = {}
    retired_at: dict[str, float] = {}
    for commit in event_log.commits:
        if isinstance(commit.answer, ClaimResult):
            worker_id = commit.arguments[0].worker_id
            for task in commit.answer.tasks:
                runs[task.fence] = TaskRun(
                    fence=task.fence,
                    worker_id=worker_id,
                    host=commit.machine,
                    worker=UNKNOWN_WORKER,  # its machine is all that faults hit
                    claimed_at=commit.at,
                    start=event_log.noted.get(("start", task.fence)),
                    end=event_log.noted.get(("end", task.fence)),
                )
        elif commit.method == "retire_worker" and commit.answer:
            retired_at.setdefault(commit.arguments[0], commit.at)
    for commit, outcome, answer in finishes(event_log.commits):
        if answer is FinishStatus.DONE and outcome.fence in runs:
            run = runs[outcome.fence]
            taken_at = retired_at.get(run.worker_id)
            ended = replace(run, ended_at=commit.at, **_end_of(outcome, commit.at))
            was_taken = ended.is_taken and taken_at is not None and taken_at <= commit.at
            runs[outcome.fence] = replace(ended, taken_at=taken_at if was_taken else None)
    return runs


def _end_of(outcome: Outcome, at: float) -> dict[str, Any]:
    facts: dict[str, Any] = {"outcome": type(outcome).__name__.lower()}
    if isinstance(outcome, Retrying | Dead | Released):
        facts |= {"charge": outcome.charge.value, "why": outcome.why}
    if isinstance(outcome, Retrying | Dead):
        failure = outcome.failure
        facts |= {"reason": failure.reason.value, "evidence": failure.evidence, "message": failure.message}
        facts["error_class"] = failure.error_class
    if isinstance(outcome, Retrying):
        facts["next_run_at"] = at + outcome.delay_seconds
    return facts


def _cancel_requests(event_log: EventLog) -> list[tuple[str, float]]:
    return [
        (task_id, commit.at)
        for commit in event_log.commits
        if commit.method == "cancel"
        for task_id, answer in commit.answer.items()
        if answer is CancelStatus.REQUESTED
    ]


def _became_visible_at(event_log: EventLog) -> dict[str, float | None]:
    """Return when each task of a enqueue in batches became visible: at the commit of the batch."""
    batched: dict[str, list[str]] = {}
    moments: dict[str, float | None] = {}
    for commit in event_log.commits:
        if commit.method == "enqueue_part":
            batch_id, tasks = commit.arguments
            batched.setdefault(batch_id, []).extend(task.id for task in tasks)
        elif commit.method == "commit_batch":
            for task_id in batched.get(commit.arguments[0], ()):
                moments.setdefault(task_id, commit.store_at)
    return moments
