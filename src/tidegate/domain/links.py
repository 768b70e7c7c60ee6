"""Signed links to the page on which a person answers an approval.

A link names the task, the key of the approval and the moment of its expiry, signed with HMAC-SHA256. Links
are not stored: a process that has the secret can make it and check it. The store makes sure that only
one answer counts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PATH = "/approve/"
"""The page of a link, below the public address of the HTTP API."""
KEPT_SECONDS = 30 * 86_400.0
"""How long a link to an approval without a timeout can be used."""
_PURPOSE = b"tidegate approval 1\0"
"""What is signed begins with this, so that a signature made with the same secret for another purpose is not
valid here."""
_EXPIRY_BYTES = 8
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Where links lead, and the keys that sign them."""

    url: str
    """The public address of the HTTP API, without a slash at the end."""
    keys: tuple[bytes, ...] = field(repr=False)
    """The first key signs new links. Links signed with any of the keys are accepted, so a secret can be
    replaced while old links are in use."""

    def approval_link(self, task_id: str, key: str, *, asked_at: float, deadline_at: float | None) -> str:
        """Return the link to an approval. The same approval has the same link each time.

        Args:
            task_id: The task that asks.
            key: The key of the approval.
            asked_at: When the task asked, in seconds since the epoch.
            deadline_at: When the approval times out; None: never.
        """
        expires_at = asked_at + KEPT_SECONDS if deadline_at is None else deadline_at
        return self.url + PATH + sign(self.keys[0], SignedApproval(task_id, key, math.ceil(expires_at)))


class SignedApproval(NamedTuple):
    """What a link says."""

    task_id: str
    key: str
    expires_at: int
    """Seconds since the epoch."""


def sign(key: bytes, approval: SignedApproval) -> str:
    """Return the part of a link after `PATH`."""
    content = (
        uuid.UUID(approval.task_id).bytes
        + approval.expires_at.to_bytes(_EXPIRY_BYTES, "big")
        + approval.key.encode()
    )
    return f"{_encoded(content)}.{_encoded(_signature(key, content))}"


def verify(keys: Sequence[bytes], token: str) -> SignedApproval | None:
    """Return what a link says; None if none of the keys signed it. The caller checks the expiry."""
    content, signature = (_decoded(part) for part in token.partition(".")[::2])
    if content is None or signature is None or len(content) <= _ID_BYTES + _EXPIRY_BYTES:
        return None
    if not any(hmac.compare_digest(_signature(key, content), signature) for key in keys):
        return None
    expiry, key = content[_ID_BYTES : _ID_BYTES + _EXPIRY_BYTES], content[_ID_BYTES + _EXPIRY_BYTES :]
    task_id = str(uuid.UUID(bytes=content[:_ID_BYTES]))
    return SignedApproval(task_id, key.decode(), int.from_bytes(expiry, "big"))


def _signature(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, _PURPOSE + content, hashlib.sha256).digest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes | None:
    """Return the bytes of base64 text; None if the text is not base64 in the form that we write."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if _encoded(data) == text else None
