"""Who may do what over HTTP: roles and those who hold them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
