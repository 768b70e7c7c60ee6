"""The errors by which a store refuses a call, in the same words on every back end."""

from __future__ import annotations

from tidegate.errors import (
    ArgumentsError,
    KeyConflictError,
    OptionError,
    TaskNotFoundError,
    WrongStateError,
)
from tidegate.readers import shown


def key_conflict(key: str, holder: str) -> KeyConflictError:
    """Return the error for a key that names another task with other arguments."""
    return KeyConflictError(
        f"the key {shown(key)} already names a task with other arguments",
        fix="use another key, or the same arguments",
        key=key,
        task_id=holder,
    )


def invalid_task_id(task_id: str) -> OptionError:
    """Return the error for a client's own id that is none."""
    return OptionError(f"{shown(task_id)} is no task id", fix="use a UUIDv7 as text", task_id=task_id)


def task_not_found(task_id: str) -> TaskNotFoundError:
    """Return the error for an id that names nothing."""
    return TaskNotFoundError(
        f"there is no task {task_id}",
        fix="check the id; a final task is deleted when its retention time is over",
        task_id=task_id,
    )


def unstorable(text: str) -> ArgumentsError:
    """Return the error for a name, key or label that no database takes as text."""
    return ArgumentsError(
        f"a name, key or label holds a NUL or a lone surrogate and cannot be stored: {shown(text)}",
        fix=r"clean the text, for example with .encode('utf-8', 'replace').decode().replace('\0', '')",
    )


def no_batch(batch_id: str) -> WrongStateError:
    """Return the error for a batch that was never filled, was dropped, or was swept away."""
    return WrongStateError(f"there is no batch {batch_id}", fix="enqueue the tasks again", batch_id=batch_id)


def batch_closed(batch_id: str) -> WrongStateError:
    """Return the error for adding to a batch that was committed or refused."""
    return WrongStateError(
        f"the batch {batch_id} is committed already", fix="use a new batch", batch_id=batch_id
    )


def cannot_join() -> OptionError:
    """Return the error for a caller's connection given to a store that cannot join its transactions."""
    return OptionError(
        "conn= joins a transaction on PostgreSQL, and the tasks are in a SQLite file",
        fix="enqueue without conn= after your own commit, or keep the tasks in PostgreSQL",
    )
