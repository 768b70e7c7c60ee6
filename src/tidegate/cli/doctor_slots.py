"""What `tidegate doctor` knows of slots: whether the live workers have enough for the limits of upstreams."""

from __future__ import annotations

from tidegate.cli.doctor import Finding, Level
from tidegate.store.capacity import shortages
from tidegate.store.protocol import Store


async def check_slots(store: Store) -> list[Finding]:
    """Warn of each upstream whose limit cannot be used up."""
    return [Finding(Level.WARN, "slots", short.words, short.fix) for short in await shortages(store)]
