"""`app.admin.upstreams`."""

from __future__ import annotations

import builtins
from collections.abc import Collection
from typing import Any, Unpack

from tidegate.admin.source import AdminSource
from tidegate.admin.values import (
    RetryBudgetStatus,
    UpstreamStatus,
    retry_budget_status,
    upstream_status,
)
from tidegate.domain.readers import Seconds, positive_option, seconds_option
from tidegate.limits.options import DURATIONS, UpstreamLimits
from tidegate.limits.settings import GateKind
from tidegate.operations.upstreams import find_upstream, require_known, set_limits
from tidegate.threads.bridge import run_sync


class UpstreamAdmin:
    """Park, open and probe upstreams, and set their limits, for all processes."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(self) -> builtins.list[UpstreamStatus]:
        """Return every upstream with its gate, its limits and its waiting tasks, by name."""
        store = await self._source.opened_store()
        rows, now = await store.list_upstreams(), await store.now()
        return [upstream_status(row, now) for row in rows]

    def list_sync(self) -> builtins.list[UpstreamStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list())

    async def get(self, name: str) -> UpstreamStatus:
        """Return one upstream.

        Raises:
            UnknownUpstreamError: The store knows no upstream of that name.
        """
        store = await self._source.opened_store()
        return upstream_status(await find_upstream(store, name), await store.now())

    def get_sync(self, name: str) -> UpstreamStatus:
        """Same as `get`, from sync code."""
        return run_sync(self.get(name))

    async def park(self, name: str, duration: Seconds | None = None, *, why: str = "") -> None:
        """Start no more tasks of an upstream. Running tasks continue; waiting tasks keep their place.

        Args:
            name: The name of the upstream.
            duration: How long it stays parked; None: until someone opens it.
            why: The reason, shown with the gate.

        Raises:
            OptionError: The duration cannot work.
            UnknownUpstreamError: The store knows no such upstream.
        """
        seconds = None if duration is None else positive_option("duration", duration)
        store = await self._source.opened_store()
        await require_known(store, name, is_known=await store.park_gate(name, seconds=seconds, why=why))

    def park_sync(self, name: str, duration: Seconds | None = None, *, why: str = "") -> None:
        """Same as `park`, from sync code."""
        run_sync(self.park(name, duration, why=why))

    async def open(self, name: str) -> None:
        """Open an upstream's gate, for example after you have fixed its account.

        Raises:
            UnknownUpstreamError: The store knows no such upstream.
        """
        store = await self._source.opened_store()
        await require_known(store, name, is_known=await store.open_gate(name))

    def open_sync(self, name: str) -> None:
        """Same as `open`, from sync code."""
        run_sync(self.open(name))

    async def probe(self, name: str) -> None:
        """Let one task try a parked upstream now; if its call succeeds, the gate opens.

        Raises:
            UnknownUpstreamError: The store knows no such upstream.
        """
        store = await self._source.opened_store()
        await require_known(store, name, is_known=await store.request_probe(name))

    def probe_sync(self, name: str) -> None:
        """Same as `probe`, from sync code."""
        run_sync(self.probe(name))

    async def set_limits(
        self, name: str, *, follow_code: Collection[str] = (), **limits: Unpack[UpstreamLimits]
    ) -> None:
        """Change limits of an upstream for all workers, from the next claim on.

        A limit set here overrides the code until `follow_code` names that limit.

        Args:
            name: The name of the upstream.
            follow_code: The names of limits that follow the code again.
            limits: Limits of `UpstreamLimits`; None removes a limit.

        Raises:
            OptionError: There is no such limit, or a value is invalid.
            UnknownUpstreamError: The store knows no such upstream.

        Example:
            >>> await app.admin.upstreams.set_limits("openai", requests_per_minute=500)  # doctest: +SKIP
        """
        given: dict[str, Any] = dict(limits)
        for option in DURATIONS:
            if given.get(option) is not None:
                given[option] = seconds_option(option, given[option])
        declared = {
            each.name: each.limits for each in self._source.declared() if each.kind is GateKind.UPSTREAM
        }
        store = await self._source.opened_store()
        await set_limits(store, name, given, follow_code=follow_code, declared=declared.get(name))

    def set_limits_sync(
        self, name: str, *, follow_code: Collection[str] = (), **limits: Unpack[UpstreamLimits]
    ) -> None:
        """Same as `set_limits`, from sync code."""
        run_sync(self.set_limits(name, follow_code=follow_code, **limits))

    async def retry_budgets(self) -> builtins.list[RetryBudgetStatus]:
        """Return the retry budgets: first the budget of the whole system, then upstreams by name."""
        store = await self._source.opened_store()
        return [retry_budget_status(row) for row in await store.list_retry_budgets()]

    def retry_budgets_sync(self) -> builtins.list[RetryBudgetStatus]:
        """Same as `retry_budgets`, from sync code."""
        return run_sync(self.retry_budgets())
