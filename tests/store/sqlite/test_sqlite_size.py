"""Sizes of a file: exact for small tables, estimated without reading everything for large ones."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tidegate.store.sqlite.size import get_sizes
from tidegate.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

ROWS = 40_000


@pytest.fixture
async def large(tmp_path: Path) -> Path:
    """A file with many rows in `payload` and `tally`."""
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    await store.open()
    await store.close()
    series = f"WITH RECURSIVE s (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i + 1 < {ROWS})"
    with closing(apsw.Connection(str(path))) as db, db:
        db.execute(
            f"INSERT INTO payload {series} SELECT unhex(printf('%032x', i)), 'json', zeroblob(300) FROM s"
        )
        db.execute(
            f"INSERT INTO tally (minute, queue, function, upstream, tenant) {series} SELECT i, 'q', 'f', '', '' FROM s"
        )
    return path


@pytest.mark.parametrize("table", ["payload", "tally"])
async def test_a_table_that_is_read_in_time_is_counted_exactly(large: Path, table: str) -> None:
    with closing(apsw.Connection(str(large))) as db:
        (found,) = [each for each in get_sizes(db, large, 60.0).tables if each.table == table]

    assert (found.rows, found.is_estimate) == (ROWS, False)


@pytest.mark.parametrize("table", ["payload", "tally"])
async def test_a_table_that_takes_too_long_is_estimated_from_its_first_pages(large: Path, table: str) -> None:
    with closing(apsw.Connection(str(large))) as db:
        (exact,) = [each for each in get_sizes(db, large, 60.0).tables if each.table == table]
        (found,) = [each for each in get_sizes(db, large, 0.0).tables if each.table == table]

    assert found.is_estimate
    assert found.rows == pytest.approx(exact.rows, rel=0.25)
    assert found.bytes == pytest.approx(exact.bytes, rel=0.25)


async def test_the_tables_add_up_to_the_file(large: Path) -> None:
    with closing(apsw.Connection(str(large))) as db:
        sizes = get_sizes(db, large, 60.0)
        in_schema = 4_096  # the first page has the schema

    assert sum(table.bytes for table in sizes.tables) + sizes.free_bytes <= sizes.bytes
    assert sizes.bytes - sum(table.bytes for table in sizes.tables) - sizes.free_bytes <= 20 * in_schema
