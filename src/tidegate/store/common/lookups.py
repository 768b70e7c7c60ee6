"""Build task rows, results and histories from stored columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidegate.codec.tags import CODEC
from tidegate.domain.failure import Reason
from tidegate.domain.redaction import redact
from tidegate.domain.states import State
from tidegate.domain.usage import UsageTotals
from tidegate.store.common.columns import PRIORITIES, FormatId, build_counters, decode_labels
from tidegate.store.rows import HistoryRow, StoredResult, TaskRow

Row = Sequence[Any]


def build_stored_result(row: Row) -> StoredResult | None:
    """Return the result from the columns of `get_result`; None if the task is not final."""
    state, data, codec_tag, reason, error_class, message, stopped, requested = row
    if state is None:
        return None
    if state == State.SUCCEEDED:
        return StoredResult(State.SUCCEEDED, b"null" if data is None else data, codec_tag or CODEC)
    if state == State.CANCELLED:
        why = requested or stopped or ""
        return StoredResult(State.CANCELLED, b"", "", reason=str(Reason.CANCELLED), message=redact(why))
    return StoredResult(State.DEAD, b"", "", reason=reason, error_class=error_class, message=redact(message))


def build_history(
    enqueued_at: float, *, attempts: Iterable[Row], other_runs: Iterable[Row], actions: Iterable[Row]
) -> list[HistoryRow]:
    """Return every run and action of a task, oldest first, from the columns of `get_history`."""
    runs = [*map(_attempt, attempts), *map(_other_run, other_runs)]
    done = [HistoryRow(kind, at, why=why) for kind, at, why in actions]
    runs_and_actions = sorted([*runs, *done], key=lambda entry: (entry.at, entry.run or 0))
    return [HistoryRow("enqueued", enqueued_at), *runs_and_actions]


def task_row(row: Row, format_id: FormatId) -> TaskRow:
    """Return a task from the columns of `read_tasks`."""
    (
        task_id, function, queue, priority, upstream, tenant, state, run, attempts, parks, crashes, losses,
        releases, rules, redrives, enqueued_at, due_at, held_until_at, held_by, started_at, finished_at,
        worker_id, cancel_requested, reason, message, why, done, total, note, key, max_attempts, deadline_at,
        redriven_at, labels, calls, *tokens,
    ) = row  # fmt: skip
    holds, text = _current_reason(State(state), reason or "", message or why or "")
    return TaskRow(
        id=format_id(task_id),
        function=function,
        queue=queue,
        priority=PRIORITIES[priority],
        upstream=upstream,
        tenant=tenant,
        state=State(state),
        run=run,
        counters=build_counters(attempts, parks, crashes, losses, releases, rules),
        redrives=redrives,
        enqueued_at=enqueued_at,
        due_at=due_at,
        held_until_at=held_until_at if held_by else None,
        held_by=held_by or "",
        started_at=started_at,
        finished_at=finished_at,
        worker_id=worker_id,
        cancel_requested=bool(cancel_requested),
        reason=holds,
        message=redact(text),
        progress_done=done,
        progress_total=total,
        progress_note=note or "",
        key=key,
        max_attempts=max_attempts,
        deadline_at=deadline_at,
        redriven_at=redriven_at,
        labels=decode_labels(labels),
        usage=None if calls is None else UsageTotals(calls, *tokens),
    )


def _current_reason(state: State, reason: str, message: str) -> tuple[str, str]:
    """Return why a task is in its present state. A failure before a success or cancel no longer counts."""
    if state is State.SUCCEEDED:
        return "", ""
    return (str(Reason.CANCELLED), "") if state is State.CANCELLED else (reason, message)


def _attempt(row: Row) -> HistoryRow:
    (
        run, worker_id, started_at, ended_at, outcome, charge, verdict, reason, error_class, message,
        traceback, status, code, request_id, evidence, next_run_at, why,
    ) = row  # fmt: skip
    return HistoryRow(
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
        message=redact(message),
        traceback=redact(traceback),
        status=status,
        code=code,
        request_id=request_id,
        evidence=redact(evidence),
        next_run_at=next_run_at,
        why=redact(why),
    )


def _other_run(row: Row) -> HistoryRow:
    run, worker_id, started_at, finished_at = row
    return HistoryRow(
        "run",
        started_at,
        run=run,
        ended_at=finished_at,
        worker_id=worker_id or "",
        outcome="" if finished_at is None else str(State.SUCCEEDED),
    )
