"""The part of the store contract for access tokens and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.store.access import AuditEntry, NewAuditEntry, NewToken, TokenRow


class Access(Protocol):
    """Access tokens for the HTTP API, and the audit log of what their users changed."""

    async def add_token(self, token: NewToken) -> None:
        """Store a token's digest with the rights it grants."""

    async def find_token(self, digest: bytes) -> TokenRow | None:
        """Return the token with this digest; None if it does not exist, has expired or was revoked."""

    async def list_tokens(self) -> list[TokenRow]:
        """Return all tokens, oldest first, including expired and revoked ones."""

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token for good; return whether one with this id exists. Safe to repeat."""

    async def add_audit_entries(self, entries: Sequence[NewAuditEntry]) -> None:
        """Store audit entries, all or none. A resent entry, recognised by its id, is skipped."""

    async def list_audit_entries(self, *, after: str | None = None, limit: int = 50) -> list[AuditEntry]:
        """Return at most `limit` audit entries, newest first, starting after the id `after`."""
