"""The values of access control: tokens, stored as digests, and audit entries."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.domain.access import Role


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to be stored. The store never sees the token, only its digest."""

    id: str
    """The public id of the token, shown in lists and in the audit log."""
    digest: bytes
    """SHA-256 of the token. The token is random, so a slow hash is not needed."""
    name: str
    role: Role
    tenant: str | None
    """None: all tenants."""
    expires_seconds: float | None = None
    """Lifetime from now; None: it never expires."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A stored token."""

    id: str
    name: str
    role: Role
    tenant: str | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None


@dataclass(frozen=True, slots=True)
class NewAuditEntry:
    """One change to record."""

    id: str
    """UUIDv7 as text, made by the caller. The id orders the log, and shows the store that an entry was sent
    before."""
    actor: str
    role: str
    tenant: str | None
    action: str
    """What was requested: `submit`, `cancel`, `retry`, `token created`…"""
    target: str
    """What the action was for: a task id, a token id, a count."""
    answer: str
    """The result."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One recorded change."""

    id: str
    at: float
    actor: str
    role: str
    tenant: str | None
    action: str
    target: str
    answer: str
    why: str
