"""The history of a database from before the sums of hours and days is complete after an upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest
from store_build import SettableClock

from pgserver import Server
from postgres_support import fresh_database
from tidegate.store.history_rows import HistoryRange
from tidegate.store.postgres import schema as postgres_schema
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.protocol import Store
from tidegate.store.sqlite import schema as sqlite_schema
from tidegate.store.sqlite.store import SqliteStore

DAY = 1440
BEFORE = 10
"""The migrations of the older version."""
EXAMPLE = "0193a000-0000-7000-8000-000000000001"


def rows(now_minute: int) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Return what the older version had: rows of minutes, hours and days in one table."""
    hour, day = now_minute - 10 * DAY, now_minute - 100 * DAY
    minutes = (now_minute, now_minute - 1, hour - hour % 60, day - day % DAY)
    names = ("main", "app:work", "")
    return [
        (
            "rollup (minute, queue, function, upstream, tenant, enqueued, started, succeeded, run_seconds)",
            [(minute, *names, "", 5, 4, 3, 2.5) for minute in minutes],
        ),
        (
            "rollup_time (minute, queue, function, upstream, kind, bucket, runs)",
            [(minute, *names, "run", 7, 3) for minute in minutes],
        ),
        (
            "death (span, minute, queue, function, upstream, reason, fingerprint, deaths, first_at, last_at, example_id)",
            [
                (span, minute, *names, "unknown", "f", 2, minute * 60.0, minute * 60.0, EXAMPLE)
                for span, minute in zip((0, 1, 60, DAY), minutes, strict=True)
            ],
        ),
    ]


def fill_sqlite(path: Path, now_minute: int) -> None:
    """Write the rows."""
    with apsw.Connection(str(path)) as db:
        for into, values in rows(now_minute):
            marks = ", ".join("?" * len(values[0]))
            stored = [
                tuple(bytes.fromhex(v.replace("-", "")) if v == EXAMPLE else v for v in row) for row in values
            ]
            db.executemany(f"INSERT INTO {into} VALUES ({marks})", stored)


def fill_postgres(url: str, now_minute: int) -> None:
    """Write the rows."""
    with psycopg.connect(url) as connection:
        for into, values in rows(now_minute):
            marks = ", ".join(["%s"] * len(values[0]))
            connection.cursor().executemany(f"INSERT INTO tidegate.{into} VALUES ({marks})", values)


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """A database without a schema."""
    with fresh_database(postgres) as name:
        yield postgres.url(name)


async def test_an_upgrade_keeps_the_history_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, path = SettableClock(), tmp_path / "queue.db"
    store = SqliteStore(path, clock=clock)
    known = sqlite_schema.known_migrations()
    with monkeypatch.context() as older:
        older.setattr(sqlite_schema, "known_migrations", lambda: known[:BEFORE])
        await store.migrate()
    fill_sqlite(path, int(clock.now // 60))
    await store.migrate()
    await check(store, clock.now)
    await store.close()


async def test_an_upgrade_keeps_the_history_on_a_server(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SettableClock()
    store = PostgresStore(postgres_url, clock=clock)
    known = postgres_schema.known_migrations()
    with monkeypatch.context() as older:
        older.setattr(postgres_schema, "known_migrations", lambda: known[:BEFORE])
        await store.migrate()
    fill_postgres(postgres_url, int(clock.now // 60))
    await store.migrate()
    await check(store, clock.now)
    await store.close()


async def check(store: Store, now: float) -> None:
    """Check that every count is there, before and after compaction."""
    which = HistoryRange(0.0, now + 60)
    for _ in range(2):
        for step in (60, DAY):
            found = await store.get_statistics(which, step_minutes=step)
            assert [row.counts.succeeded for row in found][:2] == [3, 3]
            assert sum(row.counts.started for row in found) == 16
            assert sum(row.run_times[7] for row in found) == 12
            assert sum(row.deaths for row in await store.count_deaths(which, step_minutes=step)) == 8
        (group,) = await store.list_failure_groups(which)
        assert (group.deaths, group.last_at) == (8, now - now % 60)
        await store.compact_history()
