"""What `tidegate doctor` knows of tasks that nothing runs."""

from __future__ import annotations

from typing import Any

from tidegate.cli.doctor import CheckLevel, CheckResult
from tidegate.store.protocol import Store
from tidegate.worker.supervisor.unserved import unserved_reasons


async def check_unserved(store: Store, application: Any) -> list[CheckResult]:
    """Look for functions whose queue no pool serves, and for stored tasks that no live worker runs."""
    functions = application.manifest()["functions"]
    reasons = await unserved_reasons(store, application.pools, functions)
    found = [CheckResult(CheckLevel.WARN, "queues", *_parted(reason)) for reason in reasons]
    return found or [CheckResult(CheckLevel.OK, "queues", "every function's queue is served by a pool")]


def _parted(reason: str) -> tuple[str, str]:
    what, _, fix = reason.partition("; ")
    return what, fix
