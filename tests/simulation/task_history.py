"""The short history of one task: its commits, its function's runs, and the faults of its machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checker import FunctionNote, digest_of
from simulation.event_log import Commit
from simulation.run_record import RunRecord
from tidegate.domain.outcome import Dead, Outcome, Retrying
from tidegate.store.rows import ClaimResult, HistoryRow
from tidegate.testing.virtual_time import EPOCH

_MOST_LINES = 60


def task_history(run_record: RunRecord, task_id: str) -> list[str]:
    """Return the lines in order of virtual time, then the state of the store at the end."""
    lines = sorted([*_commits(run_record, task_id), *_faults(run_record, task_id)])
    shown = [f"{at:9.2f}  {text}" for at, text in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"           … and {len(lines) - _MOST_LINES} more")
    return [*shown, *_function_lines(run_record, task_id), *_store_lines(run_record, task_id)]


def _commits(run_record: RunRecord, task_id: str) -> Iterator[tuple[float, str]]:
    for commit in run_record.event_log.commits:
        if _mentions(commit, task_id):
            yield commit.at, f"{commit.machine:6} {commit.method}: {_format_answer(commit, task_id)}"
    for machine, died_at in run_record.deaths.items():
        if any(c.machine == machine and _mentions(c, task_id) for c in run_record.event_log.commits):
            yield died_at, f"{machine:6} is gone"


def _mentions(commit: Commit, task_id: str) -> bool:
    if isinstance(commit.answer, ClaimResult):
        return any(task.fence.task_id == task_id for task in commit.answer.tasks)
    return task_id in _ids(commit.arguments) or (isinstance(commit.answer, dict) and task_id in commit.answer)


def _ids(arguments: tuple[Any, ...]) -> set[str]:
    lists = (argument for argument in arguments if isinstance(argument, list | tuple))
    return {_id(item) for items in lists for item in items}


def _id(item: Any) -> str:
    fence = getattr(item, "fence", None)
    return str(getattr(item, "id", item) if fence is None else fence.task_id)


def _format_answer(commit: Commit, task_id: str) -> str:
    if isinstance(commit.answer, ClaimResult):
        mine = [f"run {task.fence.run}" for task in commit.answer.tasks if task.fence.task_id == task_id]
        return f"{', '.join(mine)} for worker {commit.arguments[0].worker_id[:8]}"
    if commit.method == "finish":
        pairs = zip(commit.arguments[0], commit.answer, strict=True)
        return "; ".join(f"{_outcome(o)} → {a}" for o, a in pairs if o.fence.task_id == task_id)
    if isinstance(commit.answer, dict):
        return str(commit.answer.get(task_id, ""))
    if isinstance(commit.answer, list):
        return ", ".join(str(answer) for answer in commit.answer if task_id in str(answer)) or "done"
    return str(commit.answer)


def _outcome(outcome: Outcome) -> str:
    word = type(outcome).__name__.lower()
    if isinstance(outcome, Retrying | Dead):
        return f"run {outcome.fence.run} {word}, {outcome.charge}: {outcome.why}"
    return f"run {outcome.fence.run} {word}"


def _faults(run_record: RunRecord, task_id: str) -> Iterator[tuple[float, str]]:
    """Yield what hit the task's machines, or all, while it lived."""
    commits = [commit for commit in run_record.event_log.commits if _mentions(commit, task_id)]
    if not commits:
        return
    begin, end = commits[0].at, commits[-1].at
    machines = {commit.machine for commit in commits}
    for fault in run_record.event_log.faults:
        if any(fault.touches(machine, begin, end) for machine in machines):
            yield fault.began_at, f"{fault.machine or 'all':6} ! {fault.kind} {fault.what}"
    for drain in run_record.event_log.drains:
        if drain.machine in machines and drain.began_at <= end:
            until = "" if drain.ended_at is None else f" until {drain.ended_at:.2f}"
            yield drain.began_at, f"{drain.machine:6} stops{until}"


def _function_lines(run_record: RunRecord, task_id: str) -> Iterator[str]:
    for note in run_record.event_log.notes:
        if note.task_id == task_id:
            yield f"  body     {run_record.event_log.machine_that_wrote(note):6} run {note.run} {note.event}{_format_end(note)}"


def _format_end(note: FunctionNote) -> str:
    if note.event == "start":
        return ""
    return f" ({note.error})" if note.error else " (returned)"


def _store_lines(run_record: RunRecord, task_id: str) -> Iterator[str]:
    for entry in run_record.snapshot.histories.get(task_id, ()):
        yield f"  store    {entry.at - EPOCH:9.2f} {_entry(entry)}"
    row = run_record.snapshot.rows.get(task_id)
    yield (
        "  store    no such task"
        if row is None
        else f"  store    now {row.state}, run {row.run}, {row.counters}"
    )


def _entry(entry: HistoryRow) -> str:
    if entry.kind != "run":
        return f"{entry.kind} {entry.why}"
    until = "" if entry.ended_at is None else f" until {entry.ended_at - EPOCH:.2f}"
    return f"run {entry.run}{until} {entry.outcome or 'under way'} {entry.charge} {entry.why}"


def fingerprint(run_record: RunRecord) -> str:
    """Return a digest of everything that happened: equal only for runs that went the same way."""
    event_log, snapshot = run_record.event_log, run_record.snapshot
    everything = (
        event_log.commits,
        event_log.faults,
        event_log.drains,
        event_log.notes,
        sorted(event_log.injected.items()),
        event_log.observations().submitted,
        event_log.observations().cancels,
        sorted(event_log.observations().purged),
        sorted(snapshot.rows.items()),
        sorted(snapshot.histories.items()),
        sorted(snapshot.results.items()),
        run_record.steps,
        run_record.virtual_seconds,
    )
    return digest_of(repr(everything).encode())
