"""The doctor's check of tasks that no pool or worker runs."""

from __future__ import annotations

from typing import Any

from tidegate.cli.doctor import CheckLevel, CheckResult
from tidegate.store.protocol import Store
from tidegate.worker.supervisor.unserved import unserved_reasons


async def check_unserved(store: Store, application: Any) -> list[CheckResult]:
    """Warn about functions whose queue no pool serves, and about stored tasks that no live worker runs."""
    functions = application.manifest()["functions"]
    reasons = await unserved_reasons(store, application.pools, functions)
    found = [CheckResult(CheckLevel.WARN, "queues", *_split_reason(reason)) for reason in reasons]
    return found or [CheckResult(CheckLevel.OK, "queues", "a pool serves the queue of every function")]


def _split_reason(reason: str) -> tuple[str, str]:
    what, _, fix = reason.partition("; ")
    return what, fix
