"""Prints rows of the store as tables for people and as JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from tidegate.cli.formatting import (
    format_ago,
    format_duration,
    format_since,
    format_size,
    moment,
    printable,
)
from tidegate.cli.output import jsonable, print_facts, print_json, result_json, stored_json, style
from tidegate.cli.table import print_table
from tidegate.domain.states import FINAL, State
from tidegate.domain.text import counted
from tidegate.domain.usage import UsageTotals
from tidegate.errors import DataRemovedError
from tidegate.policy.explain import HOLDERS
from tidegate.store.protocol import Store
from tidegate.store.provider_job_rows import ProviderJobRow
from tidegate.store.rows import DeadLetterRow, HistoryRow, TaskRow
from tidegate.store.step_rows import OTHER_TENANT, StepRow

_RESULT_CHARACTERS = 200
"""How much of a result is shown without `--args`."""
_REMOVED = "(removed by retention)"
"""The text in place of arguments or a result that were removed before their task."""
_SHORT_ID = 13
"""The least length of a short id in a list: the part of the id that contains its time in milliseconds."""


def task_json(row: TaskRow) -> dict[str, Any]:
    """Return a task as JSON values."""
    fields: dict[str, Any] = {"task_id": row.id} | jsonable(row)
    fields["counters"]["by_rule"] = dict(row.counters.by_rule)
    del fields["id"]
    return fields


def short_ids(task_ids: Sequence[str]) -> list[str]:
    """Return the ids to print in a list: full ids in a pipe, unique short ids on a terminal."""
    if not sys.stdout.isatty():
        return list(task_ids)
    for length in range(_SHORT_ID, 36):
        if len({task_id[:length] for task_id in task_ids}) == len(set(task_ids)):
            return [task_id[:length].rstrip("-") for task_id in task_ids]
    return list(task_ids)


def dead_letter_json(dead_letter: DeadLetterRow) -> dict[str, Any]:
    """Return a dead letter as JSON values, without its arguments."""
    fields: dict[str, Any] = jsonable(dead_letter)
    fields["counters"]["by_rule"] = dict(dead_letter.counters.by_rule)
    del fields["args"], fields["codec_tag"]
    return fields


def print_tasks(rows: Sequence[TaskRow], now: float) -> None:
    """Print tasks as a table."""
    print_table(
        ["ID", "STATE", "FUNCTION", "QUEUE", "RUN", "ENQUEUED", "NOTE"],
        [
            [
                task_id,
                row.state,
                row.function,
                row.queue,
                row.run,
                format_since(row.enqueued_at, now),
                _note(row, now),
            ]
            for task_id, row in zip(short_ids([row.id for row in rows]), rows, strict=True)
        ],
        numbers=["RUN"],
        optional=["NOTE", "RUN", "QUEUE"],
        shorten=["FUNCTION", "QUEUE", "NOTE"],
    )


def print_dead_letters(dead_letters: Sequence[DeadLetterRow], now: float) -> None:
    """Print dead letters as a table."""
    print_table(
        ["ID", "FAILED", "FUNCTION", "QUEUE", "REASON", "ERROR"],
        [
            [
                task_id,
                format_since(dead_letter.failed_at, now),
                dead_letter.function,
                dead_letter.queue,
                dead_letter.reason,
                join_parts(dead_letter.error_class, dead_letter.message),
            ]
            for task_id, dead_letter in zip(
                short_ids([each.task_id for each in dead_letters]), dead_letters, strict=True
            )
        ],
        optional=["QUEUE", "REASON"],
        shorten=["FUNCTION", "QUEUE"],
    )


def _note(row: TaskRow, now: float) -> str:
    """Return a short note on the task: when it is due, its progress, or why it failed."""
    if row.cancel_requested and row.state is State.RUNNING:
        return "cancel requested"
    if row.state in {State.SCHEDULED, State.RETRYING}:
        due = (
            f"held, due {format_ago(row.held_until_at, now)}"
            if row.held_by
            else f"due {format_ago(row.due_at, now)}"
        )
        return join_parts(due, row.message)
    if row.state is State.HELD and row.held_by == "after":
        return "waits for other tasks"
    if row.state is State.SUSPENDED:
        return join_parts("" if row.due_at is None else f"due {format_ago(row.due_at, now)}", row.message)
    if row.state is State.RUNNING:
        return _progress(row) or f"for {format_duration(max(0.0, now - (row.started_at or now)))}"
    return join_parts(row.reason, row.message) if row.state is State.DEAD else ""


def join_parts(*parts: str) -> str:
    """Return the parts that are not empty as `a: b: c`."""
    return ": ".join(filter(None, parts))


def _progress(row: TaskRow) -> str:
    if row.progress_done is None:
        return ""
    total = "" if row.progress_total is None else f"/{row.progress_total:g}"
    return f"{row.progress_done:g}{total} {row.progress_note}".strip()


async def show_task(store: Store, row: TaskRow, *, with_args: bool, as_json: bool) -> None:
    """Print one task with its history.

    Args:
        store: An open store.
        row: The task.
        with_args: Whether to show the arguments and the whole result, which may be private. Otherwise the
            text form shows the beginning of the result.
        as_json: Whether to print one JSON object.
    """
    history = await store.get_history(row.id)
    steps = await store.read_steps(row.id, with_data=with_args)
    jobs = await store.list_provider_jobs(row.id)
    private = await _private(store, row) if with_args else {}
    if as_json:
        shown = {"history": jsonable(history), "steps": [_step_json(step) for step in steps]}
        shown |= {"provider_jobs": jsonable(jobs)}
        print_json(task_json(row) | shown | jsonable(private))
        return
    private = private or await _result(store, row)
    print_facts(_facts(row))
    for name, value in private.items():
        text = printable(_compact(value))
        click.echo(f"{name}  {text if with_args else _cut(text)}")
    click.echo()
    if steps:
        _print_steps(steps)
        click.echo()
    if jobs:
        _print_provider_jobs(jobs)
        click.echo()
    _print_history(history)


async def _private(store: Store, row: TaskRow) -> dict[str, Any]:
    """Return the arguments and, if there is one, the result."""
    try:
        args = stored_json(*await store.get_payload(row.id))
    except DataRemovedError:
        args = _REMOVED
    return {"args": args} | await _result(store, row)


async def _result(store: Store, row: TaskRow) -> dict[str, Any]:
    """Return the result, if there is one."""
    try:
        stored = await store.get_result(row.id) if row.state in FINAL else None
    except DataRemovedError:
        return {"result": _REMOVED}
    return {"result": result_json(stored.data, stored.codec_tag)} if stored and stored.data else {}


def _cut(text: str) -> str:
    if len(text) <= _RESULT_CHARACTERS:
        return text
    return f"{text[:_RESULT_CHARACTERS]}… ({len(text)} characters; --args shows it in full)"


def _compact(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _facts(row: TaskRow) -> Mapping[str, object]:
    spent = row.counters
    counts = {
        "parks": spent.parks,
        "crashes": spent.crashes,
        "losses": spent.losses,
        "releases": spent.releases,
    }
    others = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    limit = f" of {row.max_attempts}" if row.max_attempts is not None else ""
    return {
        "id": row.id,
        "state": "running, cancel requested"
        if row.cancel_requested and row.state is State.RUNNING
        else row.state,
        "function": row.function,
        "queue": row.queue,
        "priority": row.priority.word,
        "tenant": row.tenant,
        "upstream": row.upstream,
        "key": row.key,
        "labels": ", ".join(f"{name}={value}" for name, value in sorted(row.labels.items())),
        "attempts": f"{spent.attempts}{limit} charged, run {row.run}{f', {others}' if others else ''}",
        "redrives": row.redrives or None,
        "enqueued": moment(row.enqueued_at),
        "due": moment(row.due_at),
        "held until": f"{moment(row.held_until_at)} by {HOLDERS.get(row.held_by, row.held_by)}"
        if row.held_by and row.held_until_at is not None
        else None,
        "started": moment(row.started_at),
        "finished": moment(row.finished_at),
        "deadline": moment(row.deadline_at),
        "worker": row.worker_id,
        "progress": _progress(row),
        "usage": _usage(row.usage),
        "reason": row.reason,
        "message": row.message,
    }


def _usage(used: UsageTotals | None) -> str:
    """Return a text with the tokens that the calls of a task used; empty if no response stated them."""
    if used is None:
        return ""
    read = {"cached": used.cached_tokens, "written to a cache": used.cache_write_tokens}
    written = {"reasoning": used.reasoning_tokens}
    return (
        f"{_tokens(used.input_tokens, read)} in, {_tokens(used.output_tokens, written)} out, "
        f"{counted(used.calls, 'call')}"
    )


def _tokens(total: int, parts: Mapping[str, int]) -> str:
    shown = ", ".join(f"{tokens:,} {name}" for name, tokens in parts.items() if tokens)
    return f"{total:,} tokens" + (f" ({shown})" if shown else "")


def _step_json(step: StepRow) -> dict[str, Any]:
    fields: dict[str, Any] = jsonable(replace(step, data=None))
    del fields["data"], fields["codec"], fields["arguments"]
    return fields if step.data is None else fields | {"result": result_json(step.data, step.codec)}


def _print_provider_jobs(jobs: Sequence[ProviderJobRow]) -> None:
    """Print the provider jobs of a task as a table."""
    print_table(
        ["PROVIDER JOB", "ID", "STATE", "PROVIDER", "POLLS", "NEXT POLL", "ITEMS", "NOTE"],
        [
            [
                job.name,
                job.job_id,
                job.state,
                job.provider,
                job.polls,
                moment(job.next_poll_at) if job.is_polled else "",
                job.items or "",
                printable(job.error or job.note),
            ]
            for job in jobs
        ],
        numbers=["POLLS", "ITEMS"],
        optional=["PROVIDER", "ITEMS", "NOTE", "NEXT POLL"],
        shorten=["PROVIDER JOB", "NOTE"],
    )


def _print_steps(steps: Sequence[StepRow]) -> None:
    """Print the recorded steps of a task as a table; with results if they were read."""
    results = [
        "" if step.data is None else _cut(_compact(result_json(step.data, step.codec))) for step in steps
    ]
    print_table(
        ["STEP", "STATE", "RUN", "BEGUN", "TOOK", "SIZE", *(["RESULT"] if any(results) else [])],
        [
            [
                step.name,
                step.state,
                step.run,
                moment(step.begun_at),
                format_duration(None if step.ended_at is None else max(0.0, step.ended_at - step.begun_at)),
                format_size(step.size),
                *([printable(result)] if any(results) else []),
            ]
            for step, result in zip(steps, results, strict=True)
        ],
        numbers=["RUN", "TOOK", "SIZE"],
        optional=["SIZE", "TOOK", "BEGUN"],
        shorten=["STEP", "RESULT"],
    )
    for step in steps:
        if step.cached_from:
            whose = step.cached_from if step.cached_from == OTHER_TENANT else f"task {step.cached_from}"
            click.echo(f"{printable(step.name)}: answered from the cache of {whose}")


def _print_history(history: Sequence[HistoryRow]) -> None:
    for entry in history:
        click.echo(f"{moment(entry.at)}  {style(printable(_headline(entry)), 'bold')}")
        error = join_parts(entry.error_class, entry.message)
        for line in (error, entry.why, f"next run {moment(entry.next_run_at)}" if entry.next_run_at else ""):
            if line:
                click.echo(f"    {printable(line)}")
        for line in entry.traceback.splitlines():
            click.echo(f"    │ {printable(line)}")


def _headline(entry: HistoryRow) -> str:
    if entry.kind != "run":
        return entry.kind
    took = "" if entry.ended_at is None else f" after {format_duration(entry.ended_at - entry.at)}"
    cause = (
        f" ({', '.join(filter(None, (entry.verdict, entry.reason, entry.evidence)))})" if entry.reason else ""
    )
    return f"run {entry.run}: {entry.outcome or 'running'}{took}{cause}"
