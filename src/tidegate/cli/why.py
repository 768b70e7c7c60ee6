"""`tidegate tasks why`: what a task waits for."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, full_id, known_functions, opened_store
from tidegate.cli.formatting import printable
from tidegate.cli.output import print_json
from tidegate.errors import TaskNotFoundError
from tidegate.policy.explain import WaitingTask, explain_wait
from tidegate.store.live_workers import load_live_workers as serving_now
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskRow


async def print_why(location: StoreLocation, task_id: str, as_json: bool) -> None:
    """Print what keeps a task from running, the most telling reason first.

    Raises:
        TaskNotFoundError: No such task.
    """
    async with opened_store(location) as store:
        task_id = await full_id(store, task_id)
        row = (await store.read_tasks([task_id])).get(task_id)
        if row is None:
            raise TaskNotFoundError(
                f"no task has the id {task_id}", fix="check the id; finished tasks go after 7 days"
            )
        reasons = explain_wait(await _collect_waiting(store, location, row), await store.now())
    if as_json:
        print_json({"task_id": row.id, "state": row.state, "why": reasons})
        return
    click.echo(f"{row.state}")
    for reason in reasons:
        click.echo(f"  {printable(reason)}")


async def _collect_waiting(store: Store, location: StoreLocation, row: TaskRow) -> WaitingTask:
    serving = await serving_now(store, await store.now())
    upstream = next((found for found in await store.list_upstreams() if found.name == row.upstream), None)
    return WaitingTask(
        state=row.state,
        queue=row.queue,
        function=row.function,
        upstream=row.upstream,
        due_at=row.due_at,
        held_until_at=row.held_until_at,
        held_by=row.held_by,
        message=row.message,
        gates=await store.list_gates(),
        in_flight=0 if upstream is None else upstream.in_flight,
        serving=serving,
        is_declared=row.function in await known_functions(store, location),
    )
