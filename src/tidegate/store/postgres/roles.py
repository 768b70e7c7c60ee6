"""The three database roles: who migrates, who works, who only reads."""

from __future__ import annotations

from tidegate.store.postgres.statements import load

_ROLES = load("roles")["roles"]
_MARK = ":schema"


def roles_sql(schema: str) -> str:
    """Return what an administrator runs once, to make the roles of a schema and give them their rights."""
    return _ROLES.replace(_MARK, schema) + "\n"


def role(schema: str, kind: str) -> str:
    """Return the name of a schema's `migrator`, `worker` or `reader`."""
    return f"{schema}_{kind}"
