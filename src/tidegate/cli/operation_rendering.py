"""Shows operations on dead letters, as text and as JSON values, and follows a running operation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from tidegate.cli.error_report import CONFLICT
from tidegate.cli.formatting import format_ago, moment
from tidegate.cli.output import print_facts, print_json, print_message
from tidegate.cli.table import print_table
from tidegate.deadletter.policy.canary import canary_size
from tidegate.domain.text import counted
from tidegate.operations.bulk import describe_filter, get_operation
from tidegate.store.operation_rows import (
    ENDED,
    LetterRow,
    OperationRow,
    OperationState,
)
from tidegate.store.protocol import Store

_LOOK_SECONDS = 0.5


def print_operations(rows: Sequence[OperationRow], now: float) -> None:
    """Print operations as a table."""
    counts = ["MATCHED", "SENT", "SUCCEEDED", "DIED"]
    print_table(
        ["ID", "KIND", "STATE", *counts, "STARTED", "BY", "FILTER"],
        [
            [
                row.id,
                row.kind,
                row.state,
                row.preview,
                row.sent,
                row.succeeded,
                row.died,
                format_ago(row.started_at, now),
                row.started_by,
                describe_filter(row.filter),
            ]
            for row in rows
        ],
        numbers=counts,
        optional=["FILTER", "BY", "STARTED"],
        shorten=["BY"],
    )


def print_operation(row: OperationRow) -> None:
    """Print one operation."""
    print_facts(
        {
            "operation": row.id,
            "kind": row.kind,
            "state": f"{row.state}: {row.note}" if row.note else str(row.state),
            "by": row.started_by,
            "filter": describe_filter(row.filter),
            "matched": row.preview,
            "chosen": row.chosen,
            "canary": row.canary or None,
            "sent": row.sent,
            "succeeded": row.succeeded or None,
            "died again": row.died or None,
            "cancelled": row.cancelled or None,
            "no outcome": row.unfinished or None,
            "skipped": row.skipped or None,
            "undone": row.undone or None,
            "to queue": row.settings.to_queue,
            "started": moment(row.started_at),
            "ended": moment(row.ended_at),
        }
    )


def print_letters(letters: Sequence[LetterRow]) -> None:
    """Print the letters of an operation as a table."""
    print_table(
        ["TASK", "STATE", "FIRST ATTEMPT", "SENT", "FUNCTION", "WHY"],
        [
            [
                letter.task_id,
                letter.state,
                letter.first_try or "-",
                moment(letter.sent_at),
                letter.function,
                letter.why or "-",
            ]
            for letter in letters
        ],
        optional=["FUNCTION", "SENT"],
        shorten=["FUNCTION"],
    )


def operation_json(row: OperationRow) -> dict[str, Any]:
    """Return an operation as a JSON object."""
    return {
        "operation_id": row.id,
        "kind": row.kind,
        "state": row.state,
        "note": row.note,
        "started_by": row.started_by,
        "filter": describe_filter(row.filter),
        "preview": row.preview,
        "chosen": row.chosen,
        "canary": row.canary,
        "sent": row.sent,
        "succeeded": row.succeeded,
        "died": row.died,
        "cancelled": row.cancelled,
        "skipped": row.skipped,
        "undone": row.undone,
        "started_at": moment(row.started_at),
        "ended_at": None if row.ended_at is None else moment(row.ended_at),
    }


def letter_json(letter: LetterRow) -> dict[str, Any]:
    """Return a letter as a JSON object."""
    return {
        "task_id": letter.task_id,
        "state": letter.state,
        "first_attempt": letter.first_try or None,
        "in_canary": letter.in_canary,
        "redriven_at": None if letter.sent_at is None else moment(letter.sent_at),
        "queue": letter.queue,
        "function": letter.function,
        "tenant": letter.tenant,
        "why": letter.why,
    }


async def print_started(store: Store, operation_id: str, *, wait: bool, as_json: bool) -> int:
    """Print an operation that has started; with `wait`, follow it until it ends. Return the exit code."""
    row = await get_operation(store, operation_id)
    if wait:
        row = await _follow(store, row)
    if as_json:
        print_json(operation_json(row))
    else:
        click.echo(row.id)
    if wait:
        print_message(f"{row.state}{f': {row.note}' if row.note else ''}; {_progress(row)}")
        return 0 if row.state is OperationState.DONE else CONFLICT
    if not row.preview:
        print_message("no dead letter matches, so nothing will be sent")
        return 0
    canary = canary_size(row.preview)
    print_message(
        f"redriving {counted(row.preview, 'dead letter')}, {canary} of them first; see:"
        f" tidegate ops show {row.id}"
    )
    return 0


async def _follow(store: Store, row: OperationRow) -> OperationRow:
    shown = ""
    while row.state not in ENDED:
        progress = f"{row.state}: {_progress(row)}{f'; {row.note}' if row.note else ''}"
        if progress != shown:
            print_message(progress)
            shown = progress
        await store.wait_for_change(_LOOK_SECONDS)
        await asyncio.sleep(_LOOK_SECONDS)
        row = await get_operation(store, row.id)
    return row


def _progress(row: OperationRow) -> str:
    return f"{row.sent} of {row.chosen} sent, {row.succeeded} succeeded, {row.died} died again"
