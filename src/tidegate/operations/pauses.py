"""Pauses and resumes queues and task functions, and waits until a queue is empty."""

from __future__ import annotations

import asyncio
import getpass
import os
import random
import time
from collections.abc import Callable, Collection
from difflib import get_close_matches

from tidegate.domain.ids import IdMaker
from tidegate.domain.readers import shown
from tidegate.errors import ResultTimeoutError, UnknownFunctionError, WrongStateError
from tidegate.limits.pauses import PauseKind, Pauses
from tidegate.operations.overview import read_queues
from tidegate.store.access import NewAuditEntry
from tidegate.store.live_workers import declared_functions
from tidegate.store.protocol import Store
from tidegate.store.rows import QueueStats

_LOOK_SECONDS = 0.5
"""Time between two checks of a queue that is being drained."""


async def pause(store: Store, kind: PauseKind, name: str, *, by: str, why: str = "") -> bool:
    """Pause a queue or function, and record this; return False if it was paused already."""
    is_new = await store.pause(kind, name, by=by, why=why)
    answer = "paused" if is_new else "was paused already"
    await record(store, by, f"{kind} paused", name, answer, why)
    return is_new


async def resume(store: Store, kind: PauseKind, name: str, *, by: str) -> bool:
    """End a pause, and record this; return whether there was a pause."""
    was_paused = await store.resume(kind, name)
    await record(store, by, f"{kind} resumed", name, "resumed" if was_paused else "was not paused")
    return was_paused


async def require_declared(store: Store, function: str, own: Collection[str] = ()) -> None:
    """Raise unless some application declares the function.

    Raises:
        UnknownFunctionError: No application declares it.
    """
    known = await declared_functions(store, own)
    if function not in known:
        near = get_close_matches(function, known, n=3)
        fix = f"did you mean {' or '.join(near)}?" if near else "see `tidegate functions ls`"
        raise UnknownFunctionError(
            f"no application that ran here declares {shown(function)}", fix=fix, function=function
        )


async def wait_until_drained(
    store: Store,
    queue: str,
    *,
    timeout_seconds: float | None = None,
    on_change: Callable[[QueueStats], None] = lambda stats: None,
) -> QueueStats:
    """Wait until a queue has no ready, retrying or running task; return its counts then.

    New tasks are accepted meanwhile, and the wait includes them. Tasks that are scheduled for later do not
    count.

    Args:
        store: Holds the queue.
        queue: The name of the queue.
        timeout_seconds: How long to wait; None waits for ever.
        on_change: Called with the counts whenever they have changed.

    Raises:
        WrongStateError: The queue is paused, so it cannot become empty.
        ResultTimeoutError: The queue was not empty in time.
    """
    loop = asyncio.get_running_loop()
    ends_at = None if timeout_seconds is None else loop.time() + timeout_seconds
    before: QueueStats | None = None
    while True:
        found = next((row for row in await read_queues(store) if row.queue == queue), QueueStats(queue))
        if found != before:
            on_change(found)
            before = found
        if not tasks_left(found):
            return found
        if found.pause is not None:
            raise WrongStateError(
                f"the queue {shown(queue)} is paused, so its {tasks_left(found)} tasks do not start",
                fix=f"run `tidegate queues resume {queue}` first",
            )
        if ends_at is not None and loop.time() >= ends_at:
            raise ResultTimeoutError(
                f"the queue {shown(queue)} still has {tasks_left(found)} tasks",
                fix="wait longer, or see `tidegate status` for what they wait for",
                task_id="",
                seconds=timeout_seconds,
            )
        await store.wait_for_change(_LOOK_SECONDS)
        await asyncio.sleep(_LOOK_SECONDS)


def tasks_left(stats: QueueStats) -> int:
    """Return how many tasks a drain still waits for."""
    return stats.ready + stats.paced + stats.blocked + stats.held + stats.retrying + stats.running


async def read_pauses(store: Store) -> Pauses:
    """Return the paused queues and functions."""
    return Pauses(await store.list_pauses())


async def record(
    store: Store, by: str, action: str, target: str, answer: str, why: str = "", *, role: str = ""
) -> None:
    """Write one change to the audit log."""
    make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)
    entry = NewAuditEntry(make_id(), by, role, None, action, target, answer, why[:500])
    await store.add_audit_entries([entry])


def current_user(through: str) -> str:
    """Return the user of this process and the program in use. In a container, a user may have no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user} ({through})"
