"""Signs messages by the rules of Standard Webhooks (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64


def decode_secret(text: str) -> bytes | None:
    """Return the key of a secret: `whsec_` and base64 of 24 to 64 bytes.

    Return None if the text is no secret.
    """
    if not text.startswith(PREFIX):
        return None
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if LEAST_BYTES <= len(key) <= MOST_BYTES else None


def sign(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`: one signature for each secret, so that a secret can be replaced.

    Args:
        secrets: Valid secrets.
        message_id: The header `webhook-id`.
        timestamp: The header `webhook-timestamp`, in seconds since the epoch.
        body: The body of the request.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    keys = [key for secret in secrets if (key := decode_secret(secret)) is not None]
    return " ".join(
        "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys
    )
