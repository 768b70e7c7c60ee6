"""Dead letters: sending them back, deleting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from tidegate.store import ids
from tidegate.store.rows import ActAnswer
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.acts import answer_each, keep_act
from tidegate.store.sqlite.deletion import delete_tasks
from tidegate.store.sqlite.statements import load

_REDRIVE = load("redrive")


def redrive(
    db: apsw.Connection, now: float, task_ids: Sequence[str], args: Mapping[str, tuple[bytes, str]]
) -> dict[str, ActAnswer]:
    """Send dead letters back to the main queue; answer per id.

    Refused where the task is not dead, or another live task holds its unique name.
    """
    payloads = {ids.known_blob(task_id): payload for task_id, payload in args.items()}

    def act(task: bytes, where: str) -> bool:
        return where == "dead" and _redrive_one(db, now, task, payloads.get(task))

    return answer_each(db, task_ids, act)


def purge(db: apsw.Connection, task_ids: Sequence[str]) -> dict[str, ActAnswer]:
    """Delete dead letters for good, with payload and history."""

    def act(task: bytes, where: str) -> bool:
        if where != "dead":
            return False
        keys.free_key(db, task)  # a person wants it gone for good, unlike the retention
        delete_tasks(db, (task,))
        return True

    return answer_each(db, task_ids, act)


def _redrive_one(db: apsw.Connection, now: float, task: bytes, payload: tuple[bytes, str] | None) -> bool:
    run, *channel, unique_name = query.one(db, _REDRIVE["letter"], (task,))
    if unique_name is not None:
        wanted = keys.Claims(task, channel[-1], b"", None, 0.0, unique_name, None)
        if keys.settle(db, now, wanted) is not None:
            return False
    if payload is not None:
        db.execute(_REDRIVE["payload"], (task, *payload))
    db.execute(_REDRIVE["leave"], (task,))
    db.execute(_REDRIVE["ready"], (task, *channel, now, now, run))
    db.execute(_REDRIVE["anew"], (task, now))
    keep_act(db, now, task, "redriven", "" if payload is None else "with new arguments")
    return True
