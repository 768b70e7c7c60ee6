"""Roles, principals and tokens: who may do what over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256


class Role(StrEnum):
    """What a token permits. No role includes another: each route names the roles it accepts."""

    SUBMITTER = "submitter"
    """Submits tasks; reads, follows and cancels them by id. For front ends."""
    VIEWER = "viewer"
    """Reads everything except the audit log."""
    OPERATOR = "operator"
    """Does what submitters and viewers may, retries and purges, and may choose queue and priority."""
    ADMIN = "admin"
    """May do everything."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a request, as identified by its token or by the host application, never by the request."""

    name: str
    """The name in the audit log."""
    role: Role
    tenant: str | None
    """The only tenant whose tasks it may see and create; None for all, including tasks without a tenant."""

    def may_see(self, tenant: str) -> bool:
        """Return whether the principal may see tasks of this tenant (empty for tasks without a tenant)."""
        return self.tenant is None or (self.tenant == tenant and tenant != "")


def make_token(token_id: str, secret: str) -> str:
    """Return a token. A token is shown to a person once and never stored.

    Args:
        token_id: The public part, which names the token for people and in the audit log.
        secret: 32 random bytes or more, as URL-safe text.
    """
    return f"tg_{token_id}_{secret}"


def digest_of(token: str) -> bytes:
    """Return the stored form of a token: its SHA-256, which is enough because the token is random."""
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
