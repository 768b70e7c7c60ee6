"""The four database roles: for migrations, for workers, for readers, and for programs that only enqueue."""

from __future__ import annotations

from tidegate.store.postgres.statements import load

_ROLES = load("roles")["roles"]
_MARK = ":schema"


def roles_sql(schema: str) -> str:
    """Return the SQL with which an administrator creates the roles of a schema, once."""
    return _ROLES.replace(_MARK, schema) + "\n"


def role(schema: str, kind: str) -> str:
    """Return the name of a schema's `migrator`, `worker`, `reader` or `enqueuer`."""
    return f"{schema}_{kind}"
