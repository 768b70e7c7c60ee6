"""Types of the bodies about sizes and forgetting."""

from __future__ import annotations

import msgspec


class TableSizeOut(msgspec.Struct):
    """The size of one table with its indexes."""

    table: str
    rows: int
    bytes: int
    is_estimate: bool
    """Whether `rows` is an estimate."""


class StoreSizeOut(msgspec.Struct):
    """The size of the database."""

    bytes: int
    """The size of all its files, or of the whole schema."""
    free_bytes: int
    """Space inside the file that new rows will use; 0 in PostgreSQL."""
    log_bytes: int
    """The write-ahead log of a SQLite file, which is not part of `bytes`; 0 in PostgreSQL."""
    tables: list[TableSizeOut]
    """The largest first."""


class ForgetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to forget: a task or a tenant."""

    task_id: str | None = None
    """The task; of a task that is deleted already, the full id."""
    tenant: str | None = None
    """The tenant with all its tasks."""
    cancel: bool = False
    """Whether to cancel tasks that are not final first, and wait until they have ended."""
    dry_run: bool = False
    """Only count."""


class ForgetOut(msgspec.Struct):
    """What was forgotten; with `dry_run`, what would be."""

    tasks: int
    unfinished: int
    """How many of these tasks were not final. Without `cancel`, such tasks prevent the forgetting."""
    other_rows: int
    """Rows about the tenant that were removed or cleared besides its tasks."""
    archived_rows: int
    """Rows that were removed from the archive of the machine that answers."""
    not_erased: str
    """Why deleted bytes may still be in the database's files; empty if they are gone."""
    dry_run: bool
