"""The store contract: operations on batches. One conformance suite tests them on every back end.

Each method is one transaction unless its docstring says otherwise. A caller may repeat it with the same ids:
if the result of a COMMIT was lost, the second call returns the true result. The store's clock decides what is
due and what has expired; callers pass durations. Every method raises `StoreUnavailableError` or
`StoreBusyError` when the store cannot be reached, and otherwise only the errors its docstring names. SQL
errors are always wrapped.

The methods are grouped by their callers, with one module for each group. `Lifecycle` is in this file.
"""

from __future__ import annotations

from typing import Protocol

from tidegate.store.protocol.access import Access
from tidegate.store.protocol.alerts import Alerts
from tidegate.store.protocol.approvals import Approvals
from tidegate.store.protocol.control import Control
from tidegate.store.protocol.events import Events
from tidegate.store.protocol.maps import Maps
from tidegate.store.protocol.operations import Operations
from tidegate.store.protocol.parents import Parents
from tidegate.store.protocol.provider_jobs import ProviderJobs
from tidegate.store.protocol.retention import Retention
from tidegate.store.protocol.schedules import Schedules
from tidegate.store.protocol.steps import Steps
from tidegate.store.protocol.tasks import DeadLetters, Statistics, Tasks
from tidegate.store.protocol.upstreams import Upstreams
from tidegate.store.protocol.work import Maintenance, Streams, Work, Workers


class Lifecycle(Protocol):
    """Open and close the store, and manage its schema."""

    async def open(self) -> None:
        """Connect and check the schema. Raise SchemaError if it does not fit this version. Safe to repeat."""

    async def count_newer_migrations(self) -> int:
        """Check the schema; return how many of its migrations this version does not know.

        Usually 0. The number is above 0 during a rolling deploy, when newer code has migrated the schema and
        this version can still work with it.

        Raises:
            SchemaError: The schema is older than this version, or a newer migration has made it incompatible.
        """

    async def close(self) -> None:
        """Finish running calls and close all connections. Safe to repeat, and safe without `open`."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of the applied migrations.

        Two processes may do it together.
        """

    async def now(self) -> float:
        """Return the store's clock. The clock never goes backwards within one process."""

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return on timeout, or once something may have been committed since the last call returned.

        The return is only a hint. After a change between two calls, the second call returns immediately. The
        method may return without a change. If it misses a change, it returns after `timeout_seconds`.
        """

    async def check_integrity(self) -> list[str]:
        """Check the store's integrity; return a description of each problem."""


class Store(
    Lifecycle,
    Tasks,
    Work,
    Streams,
    Steps,
    Events,
    Approvals,
    ProviderJobs,
    Workers,
    Maintenance,
    Retention,
    Schedules,
    Upstreams,
    Control,
    DeadLetters,
    Operations,
    Maps,
    Parents,
    Statistics,
    Alerts,
    Access,
    Protocol,
):
    """The whole contract: what a back end implements."""
