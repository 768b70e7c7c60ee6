"""Access tokens and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.domain.access import Role
from tidegate.store.access import AuditEntry, NewAuditEntry, NewToken, TokenRow
from tidegate.store.common import ids
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable


async def add_token(db: Session, token: NewToken) -> None:
    """Store a token's digest with the rights it grants."""
    head = (token.id, token.digest, storable(token.name), str(token.role), _text(token.tenant))
    await db.run(db.sql("tokens")["add"], *head, db.at, token.expires_seconds)


async def find_token(db: Session, digest: bytes) -> TokenRow | None:
    """Return the token with this digest; None if it does not exist, has expired or was revoked."""
    row = await db.row(db.sql("tokens")["by_digest"], digest, db.at)
    return None if row is None else _token(row)


async def list_tokens(db: Session) -> list[TokenRow]:
    """Return all tokens, oldest first."""
    return [_token(row) for row in await db.rows(db.sql("tokens")["all"])]


async def revoke_token(db: Session, token_id: str) -> bool:
    """Revoke a token; return whether one with this id exists."""
    return await db.value(db.sql("tokens")["revoke"], storable(token_id), db.at) is not None


async def add_audit_entries(db: Session, entries: Sequence[NewAuditEntry]) -> None:
    """Store audit entries.

    Raises:
        OptionError: The id of an entry is not a UUID.
    """
    rows = [
        (
            db.id(ids.to_text(ids.new_blob(entry.id))),
            storable(entry.actor),
            entry.role,
            _text(entry.tenant),
            *map(storable, (entry.action, entry.target, entry.answer, entry.why)),
        )
        for entry in entries
    ]
    await db.run_each(db.sql("audit_entries")["insert"], rows, db.at)


async def list_audit_entries(db: Session, *, after: str | None = None, limit: int = 50) -> list[AuditEntry]:
    """Return audit entries, newest first, starting after the id `after`."""
    start = None if after is None else db.id(after)
    rows = await db.rows(db.sql("audit_entries")["page"], start or db.id(ids.AFTER_ALL), limit)
    return [AuditEntry(db.text(entry), *row) for entry, *row in rows]


def _text(value: str | None) -> str | None:
    return None if value is None else storable(value)


def _token(row: Sequence[Any]) -> TokenRow:
    token_id, name, role, *rest = row
    return TokenRow(token_id, name, Role(role), *rest)
