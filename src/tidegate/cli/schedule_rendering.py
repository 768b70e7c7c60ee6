"""Shows schedules and their ticks, as text and as JSON values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from tidegate.cli.formatting import format_ago, format_duration, moment
from tidegate.cli.output import print_facts
from tidegate.cli.table import print_table
from tidegate.domain.text import counted
from tidegate.policy.ticks import PreviewedTick, describe
from tidegate.store.schedule_rows import ScheduleRow, TickRow


def print_schedules(rows: Sequence[ScheduleRow], now: float) -> None:
    """Print schedules as a table."""
    print_table(
        ["SCHEDULE", "WHEN", "ZONE", "NEXT", "LATEST", "FUNCTION"],
        [_table_row(row, now) for row in rows],
        optional=["FUNCTION", "ZONE"],
        shorten=["SCHEDULE", "FUNCTION"],
    )


def _table_row(row: ScheduleRow, now: float) -> list[Any]:
    rule = row.rule
    coming = "paused" if row.paused_at is not None else format_ago(row.next_at, now)
    latest = "-" if row.tick is None else f"{row.tick.outcome} {format_ago(row.tick.until_at, now)}"
    return [row.name, rule.expression, rule.timezone, coming, latest, row.task.function]


def _tick_moments(tick: TickRow) -> str:
    return moment(tick.at) if tick.ticks == 1 else f"{moment(tick.at)} ({counted(tick.ticks, 'tick')})"


def print_schedule(row: ScheduleRow) -> None:
    """Print one schedule."""
    rule, task = row.rule, row.task
    late = rule.not_later_than
    print_facts(
        {
            "schedule": row.name,
            "when": f"{rule.expression} ({describe(rule)})",
            "zone": rule.timezone,
            "next": moment(row.next_at),
            "paused since": moment(row.paused_at),
            "catch-up": _catch_up(row),
            "overlap": rule.overlap,
            "not later than": None if late is None else format_duration(late),
            "function": task.function,
            "arguments": task.args,
            "queue": task.queue,
            "priority": task.priority.word,
            "tenant": task.tenant,
            "declared by": row.application or "a person",
            "changed": moment(row.changed_at),
        }
    )


def _catch_up(row: ScheduleRow) -> str:
    rule = row.rule
    if rule.catch_up != "all":
        return rule.catch_up
    return f"all, at most {rule.catch_up_limit} of the last {format_duration(rule.catch_up_window)}"


def print_ticks(ticks: Sequence[TickRow]) -> None:
    """Print ticks as a table."""
    print_table(
        ["TICK", "OUTCOME", "WHY", "TASK"],
        [[_tick_moments(tick), tick.outcome, tick.reason or "-", tick.task_id or "-"] for tick in ticks],
    )


def print_preview(tick: PreviewedTick) -> None:
    """Print a future tick: in UTC, in its time zone, and the effect of a change of the clocks."""
    click.echo(f"{moment(tick.at)[:-5]}Z  {tick.local.isoformat(sep=' ')}  {tick.mark}".rstrip())


def schedule_json(row: ScheduleRow) -> dict[str, Any]:
    """Return a schedule as JSON values."""
    rule, task = row.rule, row.task
    return {
        "name": row.name,
        "application": row.application or None,
        "when": rule.expression,
        "timezone": rule.timezone,
        "description": describe(rule),
        "catch_up": rule.catch_up,
        "catch_up_limit": rule.catch_up_limit,
        "catch_up_window_seconds": rule.catch_up_window,
        "overlap": rule.overlap,
        "not_later_than_seconds": rule.not_later_than,
        "function": task.function,
        "args": json.loads(task.args),
        "queue": task.queue,
        "priority": task.priority,
        "tenant": task.tenant or None,
        "next_at": row.next_at,
        "paused_at": row.paused_at,
        "changed_at": row.changed_at,
        "last_tick": None if row.tick is None else tick_json(row.tick),
    }


def tick_json(tick: TickRow) -> dict[str, Any]:
    """Return a tick as JSON values."""
    return {
        "planned_at": tick.at,
        "until_at": tick.until_at,
        "ticks": tick.ticks,
        "outcome": tick.outcome,
        "reason": tick.reason,
        "decided_at": tick.decided_at,
        "task_id": tick.task_id,
    }


def preview_json(tick: PreviewedTick) -> dict[str, Any]:
    """Return a future tick as JSON values."""
    return {"at": tick.at, "local": tick.local.isoformat(), "mark": tick.mark}
