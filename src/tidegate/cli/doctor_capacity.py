"""What `tidegate doctor` knows of slots: whether the live workers have enough for the limits of upstreams."""

from __future__ import annotations

from tidegate.cli.doctor import CheckLevel, CheckResult
from tidegate.store.capacity import find_slot_shortages
from tidegate.store.protocol import Store


async def check_capacity(store: Store) -> list[CheckResult]:
    """Warn of each upstream whose limit cannot be used up."""
    return [
        CheckResult(CheckLevel.WARN, "slots", short.words, short.fix)
        for short in await find_slot_shortages(store)
    ]
