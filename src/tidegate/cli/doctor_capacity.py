"""The doctor's check of slots: whether the live workers have enough for the upstreams' limits."""

from __future__ import annotations

from tidegate.cli.doctor import CheckLevel, CheckResult
from tidegate.store.capacity import find_slot_shortages
from tidegate.store.protocol import Store


async def check_capacity(store: Store) -> list[CheckResult]:
    """Warn about each upstream whose limit allows more calls than the live workers have slots for."""
    return [
        CheckResult(CheckLevel.WARN, "slots", short.description, short.fix)
        for short in await find_slot_shortages(store)
    ]
