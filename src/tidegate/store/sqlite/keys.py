"""Idempotency keys and unique names: take them and free them."""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from tidegate.store.common import ids
from tidegate.store.common.refusals import key_conflict
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load

_SQL = load("keys")


@dataclass(frozen=True, slots=True)
class WantedNames:
    """The key and the unique name that one task wants to hold."""

    task: bytes
    tenant: str
    fingerprint: bytes
    key: str | None
    key_seconds: float
    unique: str | None
    unique_seconds: float | None
    """How long the unique name is held at most; None: until the task is final."""


def take_names(db: apsw.Connection, now: float, wanted: WantedNames) -> bytes | None:
    """Take a task's names; return None, or the task that already holds one of them.

    The task's own row must be stored before the next task's names are taken. Without such a row, the names of
    the task count as free.

    Raises:
        KeyConflictError: A task with another fingerprint holds the key.
    """
    if wanted.key is not None:
        holder = _take_key(db, now, wanted, wanted.key)
        if holder is not None:
            return holder
    if wanted.unique is not None:
        expires_at = None if wanted.unique_seconds is None else now + wanted.unique_seconds
        holder = take_unique(db, now, wanted, wanted.unique, expires_at)
        if holder is not None and wanted.key is not None:
            db.execute(_SQL["release"], ("key", wanted.tenant, wanted.key, wanted.task))
        return holder
    return None


def take_unique(
    db: apsw.Connection, now: float, wanted: WantedNames, name: str, expires_at: float | None
) -> bytes | None:
    """Take a unique name; return None, or the task that holds it."""
    row = ("unique", wanted.tenant, name, wanted.task, wanted.fingerprint, expires_at, now)
    if query.value(db, _SQL["take"], row) is not None:
        return None
    holder: bytes = query.value(db, _SQL["holder"], ("unique", wanted.tenant, name))
    return holder


def free_unique(db: apsw.Connection, tenant: str, name: str, task: bytes) -> None:
    """Free a unique name if this task holds it."""
    db.execute(_SQL["release"], ("unique", tenant, name, task))


def free_key(db: apsw.Connection, task: bytes) -> None:
    """Free the idempotency key that a task holds, if it has one."""
    db.execute(_SQL["release_key"], (task,))


def _take_key(db: apsw.Connection, now: float, wanted: WantedNames, key: str) -> bytes | None:
    row = ("key", wanted.tenant, key, wanted.task, wanted.fingerprint, now + wanted.key_seconds, now)
    if query.value(db, _SQL["take"], row) is not None:
        return None
    holder, fingerprint = query.one(db, _SQL["holder"], ("key", wanted.tenant, key))
    if fingerprint != wanted.fingerprint:
        raise key_conflict(key, ids.to_text(holder))
    found: bytes = holder
    return found
