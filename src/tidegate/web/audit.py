"""The audit log: who changed what over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

from tidegate.domain.access import Principal
from tidegate.errors import TidegateError
from tidegate.store.access import NewAuditEntry
from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.web")

BATCH_SECONDS = 0.1
"""Seconds between two writes of submits to the log. A killed process loses at most the submits of this
time."""
_MAX_WAITING = 20_000


class AuditLog:
    """Writes changes to the audit log: actions before their response is sent, submits shortly after it.

    A stored task proves its submit, so the entry may follow later, in one commit with other entries.

    Args:
        opened_store: Returns the open store.
        next_id: Creates the ids of the entries.
    """

    def __init__(self, opened_store: Callable[[], Awaitable[Store]], next_id: Callable[[], str]) -> None:
        self._opened_store = opened_store
        self._next_id = next_id
        self._waiting: list[NewAuditEntry] = []
        self._job: asyncio.Task[None] | None = None

    async def record_action(
        self, principal: Principal, action: str, results: Iterable[tuple[str, str]], why: str = ""
    ) -> None:
        """Write an action to the audit log, with its result for each task."""
        entries = [self._entry(principal, action, target, answer, why) for target, answer in results]
        await (await self._opened_store()).add_audit_entries(entries)

    def record_submit(self, principal: Principal, target: str, answer: str) -> None:
        """Queue a submit to be written to the audit log shortly."""
        if len(self._waiting) >= _MAX_WAITING:
            log.error("the audit log cannot keep up: the submit of %s was not recorded", target)
            return
        self._waiting.append(self._entry(principal, "submit", target, answer, ""))
        if self._job is None:
            self._job = asyncio.create_task(self._write_soon(), name="tidegate audit log")

    async def close(self) -> None:
        """Write the queued entries."""
        if self._job is not None:
            self._job.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._job
        with contextlib.suppress(TidegateError):
            await self._write()

    async def _write_soon(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(BATCH_SECONDS)
                try:
                    await self._write()
                except TidegateError as error:
                    log.warning("%d submits are not in the audit log yet: %s", len(self._waiting), error)
                    await asyncio.sleep(1.0)
        finally:
            self._job = None

    async def _write(self) -> None:
        batch = self._waiting[:1000]
        if batch:
            await (await self._opened_store()).add_audit_entries(batch)
            del self._waiting[: len(batch)]

    def _entry(self, principal: Principal, action: str, target: str, answer: str, why: str) -> NewAuditEntry:
        return NewAuditEntry(
            self._next_id(),
            principal.name,
            principal.role,
            principal.tenant,
            action,
            target,
            answer,
            why[:500],
        )
