"""Convert task ids: text outside a store, the 16 bytes of the UUID inside."""

from __future__ import annotations

import re

from tidegate.store.common.refusals import invalid_task_id

AFTER_ALL = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Larger than every id."""

_is_canonical = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch
_TEXT_LENGTH = 36
_BLOB_LENGTH = 16


def to_blob(task_id: str) -> bytes:
    """Return the 16 bytes of an id that came from the store or from Tidegate's own client."""
    return bytes.fromhex(task_id.replace("-", ""))


def new_blob(task_id: str) -> bytes:
    """Return the 16 bytes of an id that a client made.

    Raises:
        OptionError: The id is not a UUID in its usual form.
    """
    found = blob_or_none(task_id)
    if found is None:
        raise invalid_task_id(task_id)
    return found


def blob_or_none(task_id: str) -> bytes | None:
    """Return the 16 bytes of an id that a person typed; None if no task can have it."""
    try:
        found = bytes.fromhex(task_id.replace("-", ""))
    except (ValueError, AttributeError):
        return None
    return found if len(found) == _BLOB_LENGTH and len(task_id) == _TEXT_LENGTH else None


def canonical_or_none(task_id: str) -> str | None:
    """Return the usual form of an id that a person typed; None if no task can have it."""
    if isinstance(task_id, str) and _is_canonical(task_id):
        return task_id
    found = blob_or_none(task_id)
    return None if found is None else to_text(found)


def to_text(stored: bytes) -> str:
    """Return a stored id as text."""
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
