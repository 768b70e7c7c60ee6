"""The settings that operators request for running workers, and what the workers report."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

ALL_WORKERS = "*"
"""The name that means every worker."""
APPLIED = "applied"
"""The answer of a pool process that has applied the requested settings."""
STARTED = "started"
"""The answer of a worker that is restarting its processes."""
RESTARTED = "every process has restarted"
"""The answer of a worker that has restarted its processes."""


class ControlKind(StrEnum):
    """What operators can order workers to do."""

    QUIET = "quiet"
    """Claim no more tasks, finish those that run, and stay up. Named by worker or process id."""
    CONCURRENCY = "concurrency"
    """How many tasks each process of a pool runs at once. Named by pool."""
    RELOAD = "reload"
    """Restart every process, so that it loads changed code. Named by worker, or `*` for all."""


@dataclass(frozen=True, slots=True)
class ControlRow:
    """One order to workers, as stored."""

    kind: ControlKind
    name: str
    value: int | None
    """For quiet 1 or 0; for concurrency the tasks that run together, None for the code's own number; for
    reload None."""
    version: int
    """Rises with each change of this row."""
    changed_at: float
    changed_by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class ControlReport:
    """One worker's report that it applied an order."""

    kind: ControlKind
    name: str
    reporter: str
    """The id of a pool process; for a reload, `NAME@HOST` of a worker."""
    version: int
    """The version of the order that was applied."""
    answer: str
    """`applied`, or what happened."""
    reported_at: float = 0.0
    """Set by the store."""


@dataclass(frozen=True, slots=True)
class WantedSettings:
    """The settings requested for one pool process, and the rows that hold them."""

    is_quiet: bool = False
    concurrency: int | None = None
    """How many tasks each process runs at once; None: the number in the code."""
    rows: tuple[ControlRow, ...] = ()


def wanted_settings(rows: Iterable[ControlRow], *, worker: str, worker_id: str, pool: str) -> WantedSettings:
    """Return the settings requested for one pool process.

    The process is quiet if its worker or the process itself was made quiet.
    """
    mine = tuple(row for row in rows if _concerns(row, worker, worker_id, pool))
    numbers = [row.value for row in mine if row.kind is ControlKind.CONCURRENCY]
    return WantedSettings(
        is_quiet=any(row.value == 1 for row in mine if row.kind is ControlKind.QUIET),
        concurrency=numbers[0] if numbers else None,
        rows=mine,
    )


def _concerns(row: ControlRow, worker: str, worker_id: str, pool: str) -> bool:
    names: Collection[str] = (worker, worker_id) if row.kind is ControlKind.QUIET else (pool,)
    return row.kind is not ControlKind.RELOAD and row.name in names
