"""Task ids: text outside, the 16 bytes of the UUID in the file."""

from __future__ import annotations

import apsw

from tidegate.errors import OptionError

_TEXT_LENGTH = 36
_BLOB_LENGTH = 16


def blob(task_id: str) -> bytes:
    """Return the 16 bytes of an id that came from the store or from Tidegate's own client."""
    return bytes.fromhex(task_id.replace("-", ""))


def new_blob(task_id: str) -> bytes:
    """Return the 16 bytes of an id a client made.

    Raises:
        OptionError: It is no UUID in its usual form.
    """
    found = known_blob(task_id)
    if found is None:
        raise OptionError(f"{task_id!r} is no task id", fix="use a UUIDv7 as text", task_id=task_id)
    return found


def known_blob(task_id: str) -> bytes | None:
    """Return the 16 bytes of an id a person typed; None if no task can have it."""
    try:
        found = bytes.fromhex(task_id.replace("-", ""))
    except (ValueError, AttributeError):
        return None
    return found if len(found) == _BLOB_LENGTH and len(task_id) == _TEXT_LENGTH else None


def text(stored: bytes) -> str:
    """Return an id's text."""
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def array(blobs: tuple[bytes, ...]) -> apsw.CArrayBinding:
    """Return a binding that a statement reads as the table `carray(?)`; at least one id."""
    return apsw.carray(blobs)
