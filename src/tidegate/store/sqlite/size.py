"""Report the sizes of the file and its tables within a second, however large they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from tidegate.store.retention_rows import StoreSize, TableSize
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load

_SQL = load("get_sizes")

WALK_SECONDS = 0.1
"""How long the pages of one table or index are read. If that is not enough, its size is estimated."""
_LOOK_EVERY = 100
"""How many pages are read between two checks of the clock."""


@dataclass(slots=True)
class _Tree:
    """The measured or estimated size of a table or index."""

    bytes: float = 0.0
    rows: float = 0.0
    is_estimate: bool = False


def get_sizes(db: apsw.Connection, path: Path, walk_seconds: float = WALK_SECONDS) -> StoreSize:
    """Return the sizes of the file and its tables.

    Args:
        db: A connection in a snapshot.
        path: The file.
        walk_seconds: How long the pages of one table or index are read at most.
    """
    pages, free, page_size = query.one(db, _SQL["file"])
    tables: dict[str, _Tree] = {}
    for name, table, has_inner_rows in query.rows(db, _SQL["trees"]):
        tree = _measure(db, name, bool(has_inner_rows), walk_seconds)
        total = tables.setdefault(table, _Tree())
        total.bytes += tree.bytes
        if name == table or name == f"sqlite_autoindex_{table}_1":
            total.rows, total.is_estimate = max(total.rows, tree.rows), total.is_estimate or tree.is_estimate
    found = [
        TableSize(name, round(tree.rows), round(tree.bytes), tree.is_estimate)
        for name, tree in tables.items()
    ]
    found.sort(key=lambda table: (-table.bytes, table.table))
    return StoreSize(pages * page_size, free * page_size, _log_size(path), tuple(found))


def _measure(db: apsw.Connection, name: str, has_inner_rows: bool, seconds: float) -> _Tree:
    """Return the size of a table or index, estimated if not all its pages were read in time."""
    until = time.monotonic() + seconds
    tree, children, place = _Tree(), dict[str, int](), ""
    for number, (path, kind, cells, size) in enumerate(_pages(db, name), 1):
        tree.bytes += size
        if kind == "internal":
            children[path] = cells + 1
        if kind == "leaf" or (kind == "internal" and has_inner_rows):
            tree.rows += cells
            place = path
        if number % _LOOK_EVERY == 0 and time.monotonic() > until:
            share = _share_before(place, children)
            if share > 0.0:
                return _Tree(tree.bytes / share, tree.rows / share, is_estimate=True)
    return tree


def _pages(db: apsw.Connection, name: str) -> Iterator[tuple[str, str, int, int]]:
    yield from db.execute(_SQL["pages"], (name,))


def _share_before(path: str, children: dict[str, int]) -> float:
    """Return the share of a tree that lies before a page.

    `/002/01f/` is child 0x1f of child 2 of the root.
    """
    share, width, place = 0.0, 1.0, "/"
    for step in path.strip("/").split("/"):
        if not step or place not in children:
            break
        width /= children[place]
        share += int(step, 16) * width
        place += f"{step}/"
    return share


def _log_size(path: Path) -> int:
    try:
        return Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return 0
