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


def no_task_id(task_id: str) -> OptionError:
    """Return the error for a client's own id that is none."""
    return OptionError(f"{shown(task_id)} is no task id", fix="use a UUIDv7 as text", task_id=task_id)


def not_found(task_id: str) -> TaskNotFoundError:
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


def no_stage(stage_id: str) -> WrongStateError:
    """Return the error for a stage that was never filled, was dropped, or was swept away."""
    return WrongStateError(f"there is no stage {stage_id}", fix="enqueue the tasks again", stage_id=stage_id)


def stage_closed(stage_id: str) -> WrongStateError:
    """Return the error for adding to a stage that was committed or refused."""
    return WrongStateError(
        f"the stage {stage_id} is committed already", fix="use a new stage", stage_id=stage_id
    )


def no_joining() -> OptionError:
    """Return the error for a caller's connection given to a store that cannot join its transactions."""
    return OptionError(
        "conn= joins a transaction on PostgreSQL, and the tasks are in a SQLite file",
        fix="enqueue without conn= after your own commit, or keep the tasks in PostgreSQL",
    )
