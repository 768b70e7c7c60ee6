"""Looking at tasks: rows, results, payloads, history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from tidegate.codec.tags import CODEC
from tidegate.domain.failure import Reason
from tidegate.domain.states import State
from tidegate.errors import TaskNotFoundError
from tidegate.store.columns import PRIORITIES, counters_of, labels_of
from tidegate.store.rows import HistoryEntry, StoredResult, TaskRow
from tidegate.store.sqlite import ids, query
from tidegate.store.sqlite.statements import load

_READ = load("read")["read"]
_RESULT = load("result")["result"]
_PAYLOAD = load("payload")["payload"]
_HISTORY = load("history")


def read(db: apsw.Connection, task_ids: Sequence[str]) -> dict[str, TaskRow]:
    """Return the rows of those ids that exist, by the id as it was given."""
    given = {found: task_id for task_id in task_ids if (found := ids.known_blob(task_id)) is not None}
    if not given:
        return {}
    rows = db.execute(_READ, (ids.array(tuple(given)),))
    return {given[row[0]]: _task_row(row) for row in rows}


def rows_of(db: apsw.Connection, tasks: Sequence[bytes]) -> list[TaskRow]:
    """Return the rows of these tasks in their order."""
    if not tasks:
        return []
    return [_task_row(row) for row in query.rows(db, _READ, (ids.array(tuple(tasks)),))]


def result(db: apsw.Connection, task_id: str) -> StoredResult | None:
    """Return the result of a final task; None if it is not final.

    Raises:
        TaskNotFoundError: No such task.
    """
    row = query.row(db, _RESULT, (ids.known_blob(task_id),))
    if row is None:
        raise not_found(task_id)
    state, data, codec_tag, reason, error_class, message, stopped, asked = row
    if state is None:
        return None
    if state == State.SUCCEEDED:
        return StoredResult(State.SUCCEEDED, b"null" if data is None else data, codec_tag or CODEC)
    if state == State.CANCELLED:
        why = asked or stopped or ""
        return StoredResult(State.CANCELLED, b"", "", reason=str(Reason.CANCELLED), message=why)
    return StoredResult(State.DEAD, b"", "", reason=reason, error_class=error_class, message=message)


def payload(db: apsw.Connection, task_id: str) -> tuple[bytes, str]:
    """Return a task's encoded arguments and their codec tag.

    Raises:
        TaskNotFoundError: No such task.
    """
    row = query.row(db, _PAYLOAD, (ids.known_blob(task_id),))
    if row is None:
        raise not_found(task_id)
    args, codec_tag = row
    return args, codec_tag


def history(db: apsw.Connection, task_id: str) -> list[HistoryEntry]:
    """Return every run and act of a task, oldest first; empty if there is no such task."""
    task = ids.known_blob(task_id)
    enqueued_at = query.value(db, _HISTORY["enqueued"], (task,))
    if enqueued_at is None:
        return []
    runs = [_attempt(row) for row in query.rows(db, _HISTORY["attempts"], (task,))]
    runs += [_other_run(row) for row in query.rows(db, _HISTORY["other_runs"], (task,))]
    acts = [HistoryEntry(kind, at, why=why) for kind, at, why in query.rows(db, _HISTORY["acts"], (task,))]
    told = sorted([*runs, *acts], key=lambda entry: (entry.at, entry.run or 0))
    return [HistoryEntry("enqueued", enqueued_at), *told]


def not_found(task_id: str) -> TaskNotFoundError:
    """Return the error for an id that names nothing."""
    return TaskNotFoundError(
        f"there is no task {task_id}",
        fix="check the id; a final task is deleted when its retention time is over",
        task_id=task_id,
    )


def _task_row(row: tuple[Any, ...]) -> TaskRow:
    (
        task_id, function, queue, priority, upstream, tenant, state, run, attempts, parks, crashes, losses,
        releases, rules, redrives, enqueued_at, due_at, started_at, finished_at, worker_id, cancel_requested,
        reason, message, why, done, total, note, key, max_attempts, deadline_at, redriven_at, labels,
    ) = row  # fmt: skip
    return TaskRow(
        id=ids.text(task_id),
        function=function,
        queue=queue,
        priority=PRIORITIES[priority],
        upstream=upstream,
        tenant=tenant,
        state=State(state),
        run=run,
        counters=counters_of(attempts, parks, crashes, losses, releases, rules),
        redrives=redrives,
        enqueued_at=enqueued_at,
        due_at=due_at,
        started_at=started_at,
        finished_at=finished_at,
        worker_id=worker_id,
        cancel_requested=bool(cancel_requested),
        reason=reason or "",
        message=message or why or "",
        progress_done=done,
        progress_total=total,
        progress_note=note or "",
        key=key,
        max_attempts=max_attempts,
        deadline_at=deadline_at,
        redriven_at=redriven_at,
        labels=labels_of(labels),
    )


def _attempt(row: tuple[Any, ...]) -> HistoryEntry:
    (
        run, worker_id, started_at, ended_at, outcome, charge, verdict, reason, error_class, message,
        traceback, status, code, request_id, evidence, next_run_at, why,
    ) = row  # fmt: skip
    return HistoryEntry(
        "run",
        started_at,
        run=run,
        ended_at=ended_at,
        worker_id=worker_id,
        outcome=outcome,
        verdict=verdict,
        reason=reason,
        charge=charge,
        error_class=error_class,
        message=message,
        traceback=traceback,
        status=status,
        code=code,
        request_id=request_id,
        evidence=evidence,
        next_run_at=next_run_at,
        why=why,
    )


def _other_run(row: tuple[Any, ...]) -> HistoryEntry:
    run, worker_id, started_at, finished_at = row
    return HistoryEntry(
        "run",
        started_at,
        run=run,
        ended_at=finished_at,
        worker_id=worker_id or "",
        outcome="" if finished_at is None else str(State.SUCCEEDED),
    )
