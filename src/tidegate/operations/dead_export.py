"""Reads any number of dead letters, a page at a time, with the secrets in their arguments masked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tidegate.domain.redaction import redact, redact_named
from tidegate.store.protocol import Store
from tidegate.store.rows import DeadLetterRow, TaskFilter

PAGE_SIZE = 500
"""How many dead letters are in memory at once."""


async def read_letters(store: Store, which: TaskFilter) -> AsyncIterator[DeadLetterRow]:
    """Yield each matching dead letter once, the latest failure first.

    A letter that dies, is redriven or is purged during the read may be left out.
    """
    last: DeadLetterRow | None = None
    while True:
        page = await store.list_dead_letters(
            which,
            after=None if last is None else last.task_id,
            after_failed_at=None if last is None else last.failed_at,
            limit=PAGE_SIZE,
        )
        for letter in page:
            yield letter
        if len(page) < PAGE_SIZE:
            return
        last = page[-1]


def arguments_of(letter: DeadLetterRow, *, unredacted: bool = False) -> Any:
    """Return a dead letter's arguments as JSON values, with secrets replaced by stars."""
    if not letter.codec_tag.startswith("json"):
        return f"({len(letter.args)} bytes of {letter.codec_tag})"
    values = msgspec.json.decode(letter.args)
    return values if unredacted else _masked(values, "")


def _masked(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return redact_named(value, name) if name else redact(value)
    if isinstance(value, list):
        return [_masked(item, name) for item in value]
    if isinstance(value, dict):
        return {redact(key): _masked(item, key) for key, item in value.items()}
    return value
