"""Parquet files of the archive. pyarrow, from `tidegate[parquet]`, is loaded on first use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from tidegate.errors import ConfigError
from tidegate.store.archive.lines import ArchivedRow, decode_line

_TEXTS = ("table", "task_id", "tenant")
_ROWS = 5_000
"""Rows in memory at once."""


def require() -> Any:
    """Return pyarrow.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            'archive_format = "parquet" needs pyarrow',
            fix="pip install 'tidegate[parquet]'",
            place="[retention]",
            option="archive_format",
        ) from None
    return pa


def write(lines: Iterable[bytes], path: Path) -> None:
    """Write lines as a file with the columns of `ArchivedRow`; the columns of the table are JSON text."""
    arrow = require()
    schema = arrow.schema(
        [
            ("archived_at", arrow.timestamp("us", tz="UTC")),
            ("table", arrow.string()),
            ("task_id", arrow.string()),
            ("tenant", arrow.string()),
            ("row", arrow.string()),
        ]
    )
    rows = iter(lines)
    with arrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := [decode_line(line) for line in islice(rows, _ROWS)]:
            columns = [
                arrow.array([round(row.archived_at * 1e6) for row in some], schema.field(0).type),
                *(arrow.array([getattr(row, name) for row in some]) for name in _TEXTS),
                arrow.array([msgspec.json.encode(row.row).decode() for row in some]),
            ]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


def read(path: Path) -> Iterator[bytes]:
    """Yield the lines that were written to a file."""
    arrow = require()
    with arrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_ROWS):
            for row in batch.to_pylist():
                columns = msgspec.json.decode(row["row"])
                at = row["archived_at"].timestamp()
                archived = ArchivedRow(at, row["table"], row["task_id"], row["tenant"], columns)
                yield msgspec.json.encode(archived) + b"\n"
