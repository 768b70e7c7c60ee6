"""The values of access: tokens, hashed at rest, and the audit log."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.domain.access import Role


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to be kept: never itself, only its digest."""

    id: str
    """Its public name, shown in lists and in the audit log."""
    digest: bytes
    """SHA-256 of the token, whose own randomness makes a slow hash needless."""
    name: str
    role: Role
    tenant: str | None
    """None: all tenants."""
    expires_seconds: float | None = None
    """From now; None: never."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A kept token."""

    id: str
    name: str
    role: Role
    tenant: str | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None


@dataclass(frozen=True, slots=True)
class NewAuditEntry:
    """One change to be put on record."""

    id: str
    """UUIDv7 as text, made by whoever records it: it orders the record, and by it a resend is recognised."""
    actor: str
    role: str
    tenant: str | None
    action: str
    """What was asked for: `submit`, `cancel`, `retry`, `token created`…"""
    target: str
    """What it was asked for: a task id, a token id, a count."""
    answer: str
    """What came of it."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change on record."""

    id: str
    at: float
    actor: str
    role: str
    tenant: str | None
    action: str
    target: str
    answer: str
    why: str
