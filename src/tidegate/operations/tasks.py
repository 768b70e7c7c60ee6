"""Tasks by id: find a task, run it again, explain what it waits for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidegate.domain.ids import id_or_none
from tidegate.domain.states import State
from tidegate.domain.text import counted
from tidegate.errors import TaskNotFoundError, WrongStateError
from tidegate.limits.pauses import Pauses
from tidegate.operations.bulk import IMMEDIATE_IDS, redrive_ids, require_declared
from tidegate.policy.explain import WaitingTask, explain_wait
from tidegate.store.live_workers import declared_functions, load_live_workers
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, TaskRow
from tidegate.store.short_ids import full_ids

CANCELLABLE = frozenset(
    {State.SCHEDULED, State.HELD, State.SUSPENDED, State.READY, State.RETRYING, State.RUNNING}
)
"""States in which a cancel has an effect."""
PRIORITY_CHANGEABLE = CANCELLABLE - {State.RUNNING}
"""States in which a task can be given another priority."""
CAN_RUN_NOW = frozenset({State.SCHEDULED, State.RETRYING})
"""States from which a task can be made ready at once."""
RETRYABLE = CAN_RUN_NOW | {State.DEAD}
"""States from which a task can be run again."""


async def full_id(store: Store, text: str) -> str:
    """Return the full id of the task with this id or short id.

    Raises:
        OptionError: The short id matches several tasks.
        TaskNotFoundError: No task has this id.
    """
    (found,) = await full_ids(store, [text])
    if id_or_none(found) is None:
        raise TaskNotFoundError(
            f"no task has an id that begins with {text}",
            fix="check the id; finished tasks are deleted after 7 days",
            task_id=text,
        )
    return found


async def read_task(store: Store, text: str) -> TaskRow:
    """Return the row of the task with this id or short id.

    Raises:
        OptionError: The short id matches several tasks.
        TaskNotFoundError: No task has this id.
    """
    task_id = await full_id(store, text)
    row = (await store.read_tasks([task_id])).get(task_id)
    if row is None:
        raise TaskNotFoundError(
            f"no task has the id {task_id}",
            fix="check the id; finished tasks are deleted after 7 days",
            task_id=task_id,
        )
    return row


async def read_dead_task(store: Store, text: str) -> TaskRow:
    """Return the row of the dead task with this id or short id.

    Raises:
        OptionError: The short id matches several tasks.
        TaskNotFoundError: No task has this id.
        WrongStateError: The task is not dead.
    """
    row = await read_task(store, text)
    if row.state is not State.DEAD:
        raise WrongStateError(
            f"task {row.id} is {row.state}, not dead",
            fix=f"see `tidegate tasks show {row.id}`",
            task_id=row.id,
            state=row.state,
        )
    return row


async def retry_tasks(
    store: Store, task_ids: Sequence[str], own: Collection[str], *, by: str
) -> dict[str, ActionStatus]:
    """Run tasks again now: waiting tasks become due, dead tasks are redriven, others are refused.

    Args:
        store: Holds the letters.
        task_ids: Full ids.
        own: The functions that the caller's application declares.
        by: Who does this.

    Raises:
        NotAcceptedError: A dead task belongs to a function that no application declares, or is in doubt.
    """
    rows = await store.read_tasks(task_ids)
    answers: dict[str, ActionStatus] = {
        task_id: ActionStatus.REFUSED if task_id in rows else ActionStatus.UNKNOWN for task_id in task_ids
    }
    dead = [task_id for task_id, row in rows.items() if row.state is State.DEAD]
    require_declared({rows[task_id].function for task_id in dead}, await declared_functions(store, own))
    for start in range(0, len(dead), IMMEDIATE_IDS):
        answers |= (await redrive_ids(store, dead[start : start + IMMEDIATE_IDS], own, by=by))[1]
    if waiting := [task_id for task_id, row in rows.items() if row.state in CAN_RUN_NOW]:
        answers |= await store.run_now(waiting)
    return answers


async def explain(store: Store, row: TaskRow, own: Collection[str]) -> list[str]:
    """Return what keeps a task from running, as sentences, the most important reason first.

    Args:
        store: Holds the task.
        row: The row of the task.
        own: The functions that the caller's application declares.
    """
    if row.state is State.DEAD and (waiting_for := await store.count_open_doubts([row.id])):
        count = counted(waiting_for[row.id], "call")
        return [
            f"{count} may have been processed, and a person must decide: tidegate doubts ls --task {row.id}"
        ]
    upstream = next((found for found in await store.list_upstreams() if found.name == row.upstream), None)
    waiting = WaitingTask(
        state=row.state,
        queue=row.queue,
        function=row.function,
        upstream=row.upstream,
        due_at=row.due_at,
        held_until_at=row.held_until_at,
        held_by=row.held_by,
        message=row.message,
        parents=await store.list_parents(row.id) if row.state is State.HELD else (),
        gates=await store.list_gates(),
        pauses=Pauses(await store.list_pauses()),
        in_flight=0 if upstream is None else upstream.in_flight,
        serving=await load_live_workers(store, await store.now()),
        is_declared=row.function in await declared_functions(store, own),
    )
    return explain_wait(waiting, await store.now())
