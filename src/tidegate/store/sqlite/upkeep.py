"""Upkeep of the file: checkpoint the write-ahead log, upgrade the schema, check for damage."""

from __future__ import annotations

from pathlib import Path

import apsw

from tidegate.store.common.upkeep import INCONSISTENCIES
from tidegate.store.sqlite import query, schema
from tidegate.store.sqlite.file_identity import Identity
from tidegate.store.sqlite.lock import FileLock
from tidegate.store.sqlite.statements import load

_CHECK = load("check_integrity")

WAL_TRUNCATE_BYTES = 16 * 2**20
"""A write-ahead log larger than this is truncated when no process writes."""

_TRUNCATE_WAIT_MS = 100


def checkpoint(db: apsw.Connection, path: Path, busy_seconds: float) -> None:
    """Checkpoint the write-ahead log as far as readers allow; truncate a large one if no process writes.

    Raises:
        StoreUnavailableError: The file was deleted or replaced.
    """
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        with lock.held_if_free() as is_idle:
            if is_idle:
                identity = Identity(path, lock)
                identity.fold(db, apsw.SQLITE_CHECKPOINT_PASSIVE)
                if _size(Path(f"{identity.real}-wal")) > WAL_TRUNCATE_BYTES:
                    _truncate(db, identity, busy_seconds)
    finally:
        lock.forget()


def erase_deleted(db: apsw.Connection, path: Path, busy_seconds: float) -> str:
    """Rewrite the file, and empty the write-ahead log; return why not, or an empty text.

    Deleted rows leave their bytes in free pages, and in pages that were split. VACUUM copies only what is
    stored. The rewrite needs as much free disk space as the file has.

    Raises:
        StoreUnavailableError: The file was deleted or replaced, or its disk is full.
    """
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        with lock.held():
            identity = Identity(path, lock)
            db.execute("PRAGMA temp_store = FILE")  # the copy may be larger than the memory
            try:
                db.execute("VACUUM")
            finally:
                db.execute("PRAGMA temp_store = MEMORY")
            _truncate(db, identity, busy_seconds, wait_ms=int(busy_seconds * 1000))
            if _size(Path(f"{identity.real}-wal")):
                return "a process reads the database: its write-ahead log could not be emptied. Run it again"
    finally:
        lock.forget()
    return ""


def upgrade(db: apsw.Connection, path: Path) -> list[str]:
    """Bring the schema up to date under the write lock; return the names of the migrations applied."""
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        with lock.held():
            db.execute("BEGIN IMMEDIATE")
            try:
                applied = schema.upgrade(db)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
    finally:
        lock.forget()
    return applied


def check_integrity(db: apsw.Connection) -> list[str]:
    """Check the file and its tables; return a description of each problem."""
    findings = [line for (line,) in query.rows(db, "PRAGMA integrity_check(100)")]
    faults = [] if findings == ["ok"] else [f"SQLite: {line}" for line in findings]
    for name, what in INCONSISTENCIES.items():
        offenders = query.value(db, _CHECK[name])
        if offenders:
            faults.append(f"{offenders} {what}")
    return faults


def _truncate(
    db: apsw.Connection, identity: Identity, busy_seconds: float, *, wait_ms: int = _TRUNCATE_WAIT_MS
) -> None:
    # Usually wait for readers only briefly, because writers are blocked during the wait.
    db.set_busy_timeout(wait_ms)
    try:
        identity.fold(db, apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        db.set_busy_timeout(int(busy_seconds * 1000))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
