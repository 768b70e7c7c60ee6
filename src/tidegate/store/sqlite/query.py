"""Run statements and return their rows. apsw returns untyped columns; the SQL files document their types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw


def rows(db: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Return all rows."""
    return db.execute(sql, bindings).fetchall()


def row(db: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> tuple[Any, ...] | None:
    """Return the only row, if there is one."""
    return db.execute(sql, bindings).fetchone()


def one(db: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return the only row, which must exist."""
    found = row(db, sql, bindings)
    assert found is not None
    return found


def column(db: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return the only column of all rows."""
    return tuple([found for (found,) in db.execute(sql, bindings)])


def value(db: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> Any:
    """Return the only column of the only row; None if there is no row."""
    found = db.execute(sql, bindings).fetchone()
    return None if found is None else found[0]


def array(blobs: Sequence[bytes]) -> apsw.CArrayBinding:
    """Return a binding that a statement reads as the table `carray(?)`; at least one id."""
    return apsw.carray(tuple(blobs))


def names_array(names: Iterable[str]) -> apsw.CArrayBinding:
    """Return names for `carray`, as bytes: text may contain a NUL, which `carray` does not accept."""
    return apsw.carray(tuple([name.encode("utf-8", "replace") for name in names]) or (b"",))
