"""The errors with which a store refuses a call, worded the same on every back end."""

from __future__ import annotations

from tidegate.domain.readers import shown
from tidegate.domain.retention import Data
from tidegate.errors import (
    ArgumentsError,
    DataRemovedError,
    KeyConflictError,
    OptionError,
    TaskNotFoundError,
    WrongStateError,
)


def key_conflict(key: str, holder: str) -> KeyConflictError:
    """Return the error for a key that a task with other arguments holds."""
    return KeyConflictError(
        f"the key {shown(key)} already names a task with other arguments",
        fix="use another key, or the same arguments",
        key=key,
        task_id=holder,
    )


def invalid_task_id(task_id: str) -> OptionError:
    """Return the error for a client's id that is not a UUID."""
    return OptionError(
        f"{shown(task_id)} is not a task id", fix="use a UUIDv7 as text", option="task_id", value=task_id
    )


def task_not_found(task_id: str) -> TaskNotFoundError:
    """Return the error for the id of a task that does not exist."""
    return TaskNotFoundError(
        f"there is no task {task_id}",
        fix="check the id; a final task is deleted when its retention time is over",
        task_id=task_id,
    )


def data_removed(task_id: str, data: Data) -> DataRemovedError:
    """Return the error for arguments or a result that retention removed before the task."""
    what = "arguments are" if data is Data.PAYLOADS else "result is"
    return DataRemovedError(
        f"the {what} no longer kept: task {task_id} is older than its retention of {data}",
        fix=f"look in the archive if there is one, or keep them longer: {data} in [retention]",
        task_id=task_id,
        data=str(data),
    )


def unstorable(text: str) -> ArgumentsError:
    """Return the error for a name, key or label that cannot be stored as text."""
    return ArgumentsError(
        f"a name, key or label holds a NUL or a lone surrogate and cannot be stored: {shown(text)}",
        fix=r"clean the text, for example with .encode('utf-8', 'replace').decode().replace('\0', '')",
    )


def no_batch(batch_id: str) -> WrongStateError:
    """Return the error for a batch that was never filled, was dropped, or has expired."""
    return WrongStateError(f"there is no batch {batch_id}", fix="enqueue the tasks again", batch_id=batch_id)


def batch_closed(batch_id: str) -> WrongStateError:
    """Return the error for adding to a batch that was committed or refused."""
    return WrongStateError(
        f"the batch {batch_id} is committed already", fix="use a new batch", batch_id=batch_id
    )


def cannot_join() -> OptionError:
    """Return the error for a caller's connection when the store cannot join its transaction."""
    return OptionError(
        "conn= joins a transaction on PostgreSQL, and the tasks are in a SQLite file",
        fix="enqueue without conn= after your own commit, or keep the tasks in PostgreSQL",
        option="conn",
    )
