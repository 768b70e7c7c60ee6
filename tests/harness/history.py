"""The history of one task for people: its claims and ends, its function's runs and the faults of its hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator

from checker import FunctionNote
from harness.record import RunRecord
from tidegate.store.rows import ClaimResult

_MOST_LINES = 100
_NEAR_SECONDS = 5.0


def task_history(record: RunRecord, task_id: str) -> Iterator[str]:
    """Yield the lines in order of time, then what the store holds at the end."""
    runs = [run for fence, run in record.runs.items() if fence.task_id == task_id]
    lines = list(_commits(record, task_id))
    for run in runs:
        lines.append((run.claimed_at, f"run {run.fence.run} claimed by {run.worker_id} on {run.host}"))
        if run.ended_at is not None:
            what = f"run {run.fence.run} ended {run.outcome} {run.charge} {run.why}"
            lines.append((run.ended_at, what))
    if not record.commits:
        cancels = (cancel for cancel in record.observations.cancels if cancel.task_id == task_id)
        lines += [(cancel.at, f"cancel answered {cancel.answer}") for cancel in cancels]
    for run in runs:
        for note in (run.start, run.end):
            if note is not None:
                what = f"function: {note.event} of run {note.run} in process {note.pid}{_end_of(note)}"
                lines.append((note.at, what))
    if lines:
        begin, end = min(lines)[0] - _NEAR_SECONDS, max(lines)[0] + _NEAR_SECONDS
        for fault in record.fault_log.faults:
            if any(fault.touches(host, begin, end) for host in {"", *(run.host for run in runs)}):
                lines.append((fault.began_at, f"FAULT {fault} {sorted(fault.pids) or ''}"))
    lines.sort()
    for at, text in lines[:_MOST_LINES]:
        yield f"{_format_time(record, at)}  {text}"
    if len(lines) > _MOST_LINES:
        yield f"… and {len(lines) - _MOST_LINES} more"
    yield from _stored(record, task_id)


def _format_time(record: RunRecord, at: float) -> str:
    if record.is_virtual:
        return f"{at:9.2f}"
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at * 1000) % 1000:03d}"


def _end_of(note: FunctionNote) -> str:
    return "" if note.event == "start" else f" ({note.error or 'returned'})"


def _stored(record: RunRecord, task_id: str) -> Iterator[str]:
    for entry in record.snapshot.histories.get(task_id, ()):
        is_run = entry.kind == "run"
        what = f"run {entry.run} {entry.outcome or 'under way'} {entry.charge}" if is_run else entry.kind
        yield f"  store    {what} {entry.why}"
    row = record.snapshot.rows.get(task_id)
    now = "no such task" if row is None else f"now {row.state}, {row.function}, run {row.run}, {row.counters}"
    yield f"  store    {now}"


# --- commits -------------------------------------------------------------------------------------------


def _commits(record: RunRecord, task_id: str) -> Iterator[tuple[float, str]]:
    """Yield what was committed about a task, also the ends that were refused."""
    for commit in record.commits:
        if task_id not in f"{commit.arguments} {commit.answer}":
            continue
        what = commit.answer.get(task_id, "") if isinstance(commit.answer, dict) else ""
        if commit.method == "finish":
            pairs = zip(commit.arguments[0], commit.answer, strict=True)
            ends = [(outcome, answer) for outcome, answer in pairs if outcome.fence.task_id == task_id]
            what = "; ".join(f"run {o.fence.run} {type(o).__name__.lower()} → {a}" for o, a in ends)
        if not isinstance(commit.answer, ClaimResult):
            yield commit.at, f"{commit.machine:6} {commit.method} {what}"
