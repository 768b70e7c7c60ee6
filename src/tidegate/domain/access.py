"""Who may do what over HTTP: roles and those who hold them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256


class Role(StrEnum):
    """What a token is for. None contains another: each use names the roles it takes."""

    SUBMITTER = "submitter"
    """Submits tasks; reads, follows and cancels them by id. For front ends."""
    VIEWER = "viewer"
    """Reads everything but the audit log."""
    OPERATOR = "operator"
    """Does what submitters and viewers may, retries and purges, and may choose queue and priority."""
    ADMIN = "admin"
    """Everything."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from, as its token or the host application says; never as the request says."""

    name: str
    """For the audit log."""
    role: Role
    tenant: str | None
    """The only tenant whose tasks it sees and makes; None: all, also tasks without one."""

    def may_see(self, tenant: str) -> bool:
        """Return whether tasks of this tenant (empty: of none) are within its sight."""
        return self.tenant is None or (self.tenant == tenant and tenant != "")


def make_token(token_id: str, secret: str) -> str:
    """Return a token, to be shown once.

    Args:
        token_id: Its public part, by which people and the audit log name it.
        secret: 32 random bytes or more, as URL-safe text.
    """
    return f"tg_{token_id}_{secret}"


def digest_of(token: str) -> bytes:
    """Return what is stored of a token: SHA-256, since its own randomness leaves nothing to guess."""
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
