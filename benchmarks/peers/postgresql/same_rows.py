"""The rows that an enqueue of Tidegate writes, written by hand: all else that it does costs the difference.

Which rows these are is learnt, not repeated here: one task is enqueued by Tidegate, and every table that has
a row more is one of them.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from benchmarks.peers import ours
from benchmarks.peers.contract import PeerQueue

SCHEMA = "tidegate"
_TABLES = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = $1 AND table_type = 'BASE TABLE' ORDER BY table_name"""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A table and the row that one enqueue adds to it."""

    table: str
    row: dict[str, Any]

    def of(self, task_id: uuid.UUID) -> tuple[Any, ...]:
        """Return the row of another task: the same but for the id."""
        return tuple(task_id if isinstance(value, uuid.UUID) else value for value in self.row.values())

    @property
    def is_a_tasks(self) -> bool:
        """Tell whether it has one row a task; else it has one a call (a counter)."""
        return any(isinstance(value, uuid.UUID) for value in self.row.values())


class Peer(PeerQueue):
    async def create(self) -> None:
        await ours.Peer().create()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)
        self.patterns = await _learnt(self.connection)
        self.statement = _one_statement(self.patterns)

    async def close(self) -> None:
        await self.connection.close()

    async def enqueue(self, number: int) -> None:
        """Write the rows of one task by one statement, its own transaction."""
        task_id = _new_id()
        values = [value for pattern in self.patterns for value in pattern.of(task_id)]
        await self.connection.execute(self.statement, *values)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Write those of many by COPY, in one transaction."""
        ids = [_new_id() for _ in numbers]
        async with self.connection.transaction():
            for pattern in self.patterns:
                records = [pattern.of(each) for each in (ids if pattern.is_a_tasks else ids[:1])]
                await self.connection.copy_records_to_table(
                    pattern.table, schema_name=SCHEMA, columns=list(pattern.row), records=records
                )


async def _learnt(connection: asyncpg.Connection) -> list[Pattern]:
    """Enqueue one task by Tidegate and return what it has written."""
    before = await _rows(connection)
    client = ours.Peer()
    await client.open()
    await client.enqueue(0)
    await client.close()
    after = await _rows(connection)
    return [Pattern(name, dict(row)) for name in after for row in after[name] if row not in before[name]]


async def _rows(connection: asyncpg.Connection) -> dict[str, list[asyncpg.Record]]:
    names = [row["table_name"] for row in await connection.fetch(_TABLES, SCHEMA)]
    return {name: await connection.fetch(f'SELECT * FROM {SCHEMA}."{name}"') for name in names}


def _one_statement(patterns: Sequence[Pattern]) -> str:
    """Return one INSERT for all tables, every value a parameter."""
    places = _places(patterns)
    inserts = [
        f'INSERT INTO {SCHEMA}."{pattern.table}" ({", ".join(pattern.row)}) VALUES ({next(places)})'
        for pattern in patterns
    ]
    parts = [f"part_{number} AS ({insert})" for number, insert in enumerate(inserts[:-1])]
    return f"{'WITH ' if parts else ''}{', '.join(parts)} {inserts[-1]}"


def _places(patterns: Sequence[Pattern]) -> Iterator[str]:
    first = 1
    for pattern in patterns:
        yield ", ".join(f"${number}" for number in range(first, first + len(pattern.row)))
        first += len(pattern.row)


def _new_id() -> uuid.UUID:
    """Return a UUIDv7: rising with time, the rest random."""
    head = int(time.time() * 1000).to_bytes(6, "big")
    tail = bytearray(os.urandom(10))
    tail[0], tail[2] = 0x70 | tail[0] & 0x0F, 0x80 | tail[2] & 0x3F
    return uuid.UUID(bytes=head + bytes(tail))
