"""Send an event to the tasks that wait for it."""

from __future__ import annotations

import uuid
from typing import Any

from tidegate.codec import CODEC, encode
from tidegate.domain.readers import (
    LONGEST_WAIT_SECONDS,
    Seconds,
    positive_option,
    short_text_option,
    text_option,
)
from tidegate.domain.step import KEY_LENGTH
from tidegate.store.event_rows import NewEvent
from tidegate.store.protocol import Store

KEPT_SECONDS = 7 * 86_400.0
"""How long an event stays for tasks that begin to wait for it later."""
_NAMESPACE = uuid.UUID("6f0f6a52-5d5c-4a2b-9b1c-0d8f0a6f6b5e")


async def send_event(
    store: Store,
    name: str,
    data: Any = None,
    *,
    tenant: str = "",
    key: str | None = None,
    keep: Seconds = KEPT_SECONDS,
) -> int:
    """Send an event; return how many tasks waited for it.

    Args:
        store: An open store.
        name: Its name, 1 to 200 characters.
        data: What the tasks get: any value that can be stored.
        tenant: The tenant whose tasks get it; empty: tasks without a tenant.
        key: An event with the key of an earlier one, of the same name, is the same event.
        keep: How long it stays for tasks that begin to wait later.

    Raises:
        OptionError: An option is invalid.
        ArgumentsError: The data cannot be stored.
    """
    return await store.send_event(_new_event(name, data, tenant, key, keep))


def _new_event(name: str, data: Any, tenant: str, key: str | None, keep: Seconds) -> NewEvent:
    for option, value in (("name", name), ("key", key)):
        if value is not None:
            short_text_option(option, value, most=KEY_LENGTH)
    if tenant:
        text_option("tenant", tenant)
    event_id = uuid.uuid4()
    if key is not None:
        event_id = uuid.uuid5(_NAMESPACE, f"{tenant}\0{name}\0{key}")
    kept_seconds = positive_option("keep", keep, most=LONGEST_WAIT_SECONDS)
    return NewEvent(str(event_id), name, tenant, encode(data, path="data"), CODEC, kept_seconds)
