"""Tokens by their digests, and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from tidegate.domain.access import Role
from tidegate.store import ids
from tidegate.store.access import AuditEntry, NewAuditEntry, NewToken, TokenRow
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable

_TOKENS = load("tokens")
_AUDIT = load("audit")

_AFTER_ALL = b"\xff" * 17
"""Larger than every id."""


def add_token(db: apsw.Connection, now: float, token: NewToken) -> None:
    """Keep a token's digest with what it lets people do."""
    expires_at = None if token.expires_seconds is None else now + token.expires_seconds
    tenant = None if token.tenant is None else storable(token.tenant)
    row = (token.id, token.digest, storable(token.name), str(token.role), tenant, now, expires_at)
    db.execute(_TOKENS["add"], row)


def find_token(db: apsw.Connection, now: float, digest: bytes) -> TokenRow | None:
    """Return the token with this digest, if it is good now."""
    row = query.row(db, _TOKENS["by_digest"], (digest, now))
    return None if row is None else _token(row)


def tokens(db: apsw.Connection) -> list[TokenRow]:
    """Return all tokens that were ever made, the oldest first."""
    return [_token(row) for row in query.rows(db, _TOKENS["all"])]


def revoke_token(db: apsw.Connection, now: float, token_id: str) -> bool:
    """Make a token worthless; return whether there is one of this id."""
    return query.value(db, _TOKENS["revoke"], (storable(token_id), now)) is not None


def record(db: apsw.Connection, now: float, entries: Sequence[NewAuditEntry]) -> None:
    """Put changes on record."""
    for entry in entries:
        tenant = None if entry.tenant is None else storable(entry.tenant)
        texts = (entry.action, entry.target, entry.answer, entry.why)
        head = (ids.new_blob(entry.id), now, storable(entry.actor), entry.role, tenant)
        db.execute(_AUDIT["keep"], (*head, *map(storable, texts)))


def audit(db: apsw.Connection, after: str | None, limit: int) -> list[AuditEntry]:
    """Return the record, the newest first, continuing after the id `after`."""
    start = None if after is None else ids.known_blob(after)
    rows = query.rows(db, _AUDIT["page"], (start or _AFTER_ALL, limit))
    return [AuditEntry(ids.text(entry), *row) for entry, *row in rows]


def _token(row: tuple[Any, ...]) -> TokenRow:
    token_id, name, role, *rest = row
    return TokenRow(token_id, name, Role(role), *rest)
