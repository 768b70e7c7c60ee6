"""Seeded bugs: each is one plausible mistake in the engine or the store, added by monkeypatching.

The simulation must fail with each of them. `faults` lists the faults under which the bug shows; `caught_by`
lists invariants of which at least one must be broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apsw
import pytest

from simulation import FaultKind
from tidegate.domain.final_result import FinalResult
from tidegate.domain.outcome import Outcome, Succeeded
from tidegate.domain.step import OnDoubt, StepState
from tidegate.errors import TaskFailedError
from tidegate.handle import Handle
from tidegate.maps import runner
from tidegate.operations.task_watcher import TaskWatcher
from tidegate.store.common import ids, parents, promote, task_waits
from tidegate.store.common.session import Session
from tidegate.store.map_rows import MapCounts
from tidegate.store.parent_rows import EndedParents
from tidegate.store.rows import ClaimRequest, EnqueueResult, NewTask
from tidegate.store.sqlite import claim, finish, keys, outcomes, query, redrive, steps
from tidegate.store.sqlite.finish import is_resent
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.sqlite.work import SqliteSession
from tidegate.store.step_rows import BegunStep, EndedStep, EndStatus, StepBegin, StepEnd
from tidegate.store.worker_rows import WorkerRow
from tidegate.worker.engine import outcome_decider
from tidegate.worker.engine.claimer import Claimer
from tidegate.worker.engine.engine import Engine
from tidegate.worker.engine.finisher import Finisher
from tidegate.worker.engine.heartbeat import Heartbeat
from tidegate.worker.engine.lease import Lease
from tidegate.worker.maintenance.reaper import PAGE_SIZE, Reaper

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """One seeded bug."""

    apply: Patch
    faults: frozenset[FaultKind]
    caught_by: frozenset[str]
    is_quick: bool
    first_seed: int
    """Tried first, with few tasks and then with the usual number: one that is known to catch it soon."""

    @property
    def name(self) -> str:
        return self.apply.__name__


MUTANTS: list[Mutant] = []


def mutant(
    faults: str, caught_by: str, *, quick: bool = False, first_seed: int = 0
) -> Callable[[Patch], Patch]:
    def register(apply: Patch) -> Patch:
        kinds = frozenset(FaultKind(word) for word in faults.split())
        MUTANTS.append(Mutant(apply, kinds, frozenset(caught_by.split()), quick, first_seed))
        return apply

    return register


async def _do_nothing(*_: object) -> bool:
    return False


def _retire_if(
    condition: Callable[[WorkerRow, float], bool], *, even_if_alive: bool = False
) -> Callable[[Reaper], Awaitable[bool]]:
    """Return one pass of a reaper that retires the workers for which a condition holds."""

    async def run_once(reaper: Reaper) -> bool:
        now = await reaper._store.now()
        for worker in await reaper._store.list_workers():
            if worker.retired_at is None and condition(worker, now):
                await reaper._retire(worker, only_if_expired=not even_if_alive)
        return await reaper.decide_orphans() >= PAGE_SIZE

    return run_once


# --- the store ---


@mutant("crash", "G6", quick=True, first_seed=2)
def doubts_are_not_entered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "_enter", lambda db, now, call, state, row: None)


@mutant("crash", "G6")
def steps_in_doubt_are_repeated_without_a_person(patch: pytest.MonkeyPatch) -> None:
    real = steps._begin

    def repeat(db: apsw.Connection, now: float, begin: StepBegin) -> BegunStep:
        return real(db, now, begin._replace(on_doubt=OnDoubt.REPEAT))

    patch.setattr(steps, "_begin", repeat)


@mutant("pause", "G6")
def a_late_result_replaces_the_recorded_one(patch: pytest.MonkeyPatch) -> None:
    def adopt(db: apsw.Connection, now: float, task: bytes, end: StepEnd, row: Any) -> EndedStep:
        steps._adopt(db, now, task, end, row._replace(state=StepState.OPEN))
        return EndedStep(EndStatus.DONE)

    patch.setattr(steps, "_end_with_result", adopt)


@mutant("crash", "G6", quick=True)
def results_of_steps_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    def forget(db: apsw.Connection, now: float, task: bytes, end: StepEnd, row: Any) -> EndedStep:
        return EndedStep(EndStatus.DONE)

    patch.setattr(steps, "_end_with_result", forget)


@mutant("", "I18", quick=True, first_seed=4)
def callbacks_of_maps_are_not_enqueued(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runner, "_callback", lambda row, counts, now: None)


@mutant("", "I18")
def a_map_ends_with_its_first_items(patch: pytest.MonkeyPatch) -> None:
    real = SqliteStore.count_map_items

    async def none_is_unfinished(store: SqliteStore, map_id: str, **options: Any) -> MapCounts:
        return (await real(store, map_id, **options))._replace(unfinished=0)

    async def find_none(*_: object) -> None:
        return None

    patch.setattr(SqliteStore, "count_map_items", none_is_unfinished)
    patch.setattr(SqliteStore, "find_unfinished_item", find_none)


@mutant("", "after", quick=True, first_seed=6)
def tasks_after_others_are_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parents, "hold_new", _do_nothing)


@mutant("", "after")
def failed_parents_count_as_succeeded(patch: pytest.MonkeyPatch) -> None:
    real = SqliteStore.find_ended_parents

    async def find(store: SqliteStore, after: str | None, limit: int) -> EndedParents:
        ended = await real(store, after, limit)
        return ended._replace(succeeded=(*ended.succeeded, *ended.failed), failed=())

    patch.setattr(SqliteStore, "find_ended_parents", find)


@mutant("", "I13")
def sent_events_wake_nobody(patch: pytest.MonkeyPatch) -> None:
    _replace_statement(patch, "events", wake="SELECT ?1, ?2")


@mutant("", "wait", quick=True)
def an_event_arrives_without_its_data(patch: pytest.MonkeyPatch) -> None:
    deliver = load("events")["deliver"]
    assert "data = ?5" in deliver
    null = "data = coalesce(CAST('null' AS BLOB), ?5)"
    _replace_statement(patch, "events", deliver=deliver.replace("data = ?5", null))


@mutant("", "I13", first_seed=8)
def an_event_that_was_sent_before_its_wait_is_missed(patch: pytest.MonkeyPatch) -> None:
    _replace_statement(patch, "events", event="SELECT ?1, ?2, ?3 WHERE ?4 < 0")


@mutant("", "I13", first_seed=2)
def the_end_of_the_last_child_wakes_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task_waits, "set_children", _do_nothing)


@mutant("", "wait", quick=True, first_seed=4)
def children_that_can_still_run_count_as_dead(patch: pytest.MonkeyPatch) -> None:
    async def ended(handle: Handle[Any]) -> FinalResult[Any]:
        return FinalResult(None, TaskFailedError("not yet", task_id=handle.id))

    patch.setattr(Handle, "_ended", ended)


def _replace_statement(patch: pytest.MonkeyPatch, operation: str, **statements: str) -> None:
    real = SqliteSession.sql

    def sql(session: SqliteSession, name: str) -> Mapping[str, str]:
        found = real(session, name)
        if name != operation:
            return found
        assert statements.keys() <= found.keys()
        return {**found, **statements}

    patch.setattr(SqliteSession, "sql", sql)


def _with_run(outcome: Outcome, run: int | None) -> Outcome:
    if run is None:
        return outcome
    fence = outcome.fence._replace(run=run)
    return outcome._replace(fence=fence) if isinstance(outcome, Succeeded) else replace(outcome, fence=fence)


@mutant("lost_answers pause", "I9 I10", quick=True, first_seed=2)
def finish_ignores_the_run(patch: pytest.MonkeyPatch) -> None:
    real = finish.finish

    def by_id_only(db: apsw.Connection, now: float, outcomes: Sequence[Outcome]) -> Any:
        runs = {
            ids.to_text(task): run for task, run in query.rows(db, "SELECT task_id, run FROM running", ())
        }
        moved = [_with_run(outcome, runs.get(outcome.fence.task_id)) for outcome in outcomes]
        return real(db, now, moved)

    patch.setattr(finish, "finish", by_id_only)


@mutant("lost_answers", "I10", quick=True, first_seed=9)
def resent_finish_is_answered_fenced(patch: pytest.MonkeyPatch) -> None:
    assert finish.is_resent is is_resent
    patch.setattr(finish, "is_resent", lambda db, task, outcome: False)


@mutant("", "I1", quick=True, first_seed=9)
def enqueue_answers_before_it_commits(patch: pytest.MonkeyPatch) -> None:
    real = SqliteStore.enqueue

    async def enqueue_without_storing(store: SqliteStore, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        if tasks and int(tasks[0].id[-1], 16) == 0:
            return [EnqueueResult(task.id, created=True) for task in tasks]
        return await real(store, tasks)

    patch.setattr(SqliteStore, "enqueue", enqueue_without_storing)


@mutant("", "I13 I20", quick=True, first_seed=12)
def promote_loses_one_task(patch: pytest.MonkeyPatch) -> None:
    async def drop(db: Session, limit: int) -> int:
        sql = db.sql("promote")
        due = [task for task, *_ in await db.rows(sql["due"], db.at, limit)]
        deferred = [task for task in due if task[-1] % 8]
        await db.run(sql["ready"], db.array(deferred), db.at)
        await db.run(sql["leave"], db.array(due))
        return len(due)

    patch.setattr(promote, "promote", drop)


@mutant("pause", "I19", quick=True, first_seed=5)
def retry_ignores_cancel(patch: pytest.MonkeyPatch) -> None:
    real = outcomes.EndedRunRow
    patch.setattr(outcomes, "EndedRunRow", lambda *row: real(*row)._replace(cancel_requested=0))


@mutant("", "I3")
def keys_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "_take_key", lambda db, now, seeds_to_run, key: None)


@mutant("", "I3")
def unique_names_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "take_unique", lambda db, now, seeds_to_run, name, expires_at: None)


@mutant("", "I20 I15 I12")
def a_redrive_keeps_the_counters(patch: pytest.MonkeyPatch) -> None:
    reset = "UPDATE task SET redrives = redrives + 1, redriven_at = ?2 WHERE id = ?1"
    assert "reset" in redrive._REDRIVE
    patch.setattr(redrive, "_REDRIVE", {**redrive._REDRIVE, "reset": reset})


@mutant("pause", "I8")
def a_retired_worker_goes_on_claiming(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "is_held", lambda lease: True)  # it would not even ask
    patch.setattr(claim, "_is_alive", lambda db, worker_id: True)


@mutant("", "I5 I7 I12")
def a_claim_does_not_raise_the_run(patch: pytest.MonkeyPatch) -> None:
    real = claim.claim

    def same_run(db: apsw.Connection, now: float, request: ClaimRequest) -> Any:
        taken = real(db, now, request)
        resume = [task for task in taken.tasks if task.fence.run == 2]
        for task in resume:
            db.execute("UPDATE running SET run = 1 WHERE task_id = ?", (ids.to_blob(task.fence.task_id),))
        tasks = tuple(
            task._replace(fence=task.fence._replace(run=1)) if task in resume else task
            for task in taken.tasks
        )
        return replace(taken, tasks=tasks)

    patch.setattr(claim, "claim", same_run)


# --- the worker ---


@mutant("outage", "I12", quick=True, first_seed=6)
def reaper_does_not_wait_for_passes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reaper, "run_once", _retire_if(lambda worker, now: worker.expires_at < now))


@mutant("", "I12", quick=True)
def reaper_ignores_lease_expiry(patch: pytest.MonkeyPatch) -> None:
    def is_silent(worker: WorkerRow, now: float) -> bool:
        return now - worker.heartbeat_at > 0.3 * (worker.expires_at - worker.heartbeat_at)

    patch.setattr(Reaper, "run_once", _retire_if(is_silent, even_if_alive=True))


@mutant("crash", "I13 I14")
def reaper_never_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reaper, "run_once", _do_nothing)


@mutant("lost_answers", "I13", quick=True, first_seed=9)
def lost_claims_are_not_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Claimer, "_release_lost_claims", _do_nothing)


@mutant("", "I19")
def cancels_are_not_polled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Engine, "_watch_cancels", _do_nothing)


@mutant("lost_answers errors outage", "I12 I13")
def outcomes_are_dropped_when_the_store_is_away(patch: pytest.MonkeyPatch) -> None:
    async def write(finisher: Finisher) -> None:
        while finisher._outcomes:
            batch = list(finisher._outcomes)
            finisher._outcomes.clear()
            await finisher._store.finish(batch)
        finisher._woken.clear()
        finisher._empty.set()

    patch.setattr(Finisher, "_write", write)


@mutant("outage", "I12 I13")
def the_heartbeat_gives_up_at_the_first_error(patch: pytest.MonkeyPatch) -> None:
    async def run(heartbeat: Heartbeat) -> None:
        while True:
            await heartbeat.beat()
            await asyncio.sleep(heartbeat._timings.beat)

    patch.setattr(Heartbeat, "run", run)


@mutant("drain", "I12")
def a_stop_does_not_wait_for_the_last_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Finisher, "wait_until_written", _do_nothing)


@mutant("broken", "I13 uncaught")
def policy_errors_are_not_caught(patch: pytest.MonkeyPatch) -> None:
    def raise_error(fence: object, spec: object, fault: BaseException, failure: object = None) -> Any:
        raise fault

    patch.setattr(outcome_decider, "undecidable_outcome", raise_error)


@mutant("", "I13")
def result_waiters_are_not_woken(patch: pytest.MonkeyPatch) -> None:
    real = TaskWatcher._wake_waiting

    def report(watch: TaskWatcher, task_id: str) -> None:
        if int(task_id[-1], 16) % 3:
            real(watch, task_id)

    patch.setattr(TaskWatcher, "_wake_waiting", report)
