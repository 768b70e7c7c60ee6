"""`tidegate tasks why`: what a task waits for."""

from __future__ import annotations

import click

from tidegate.cli.common import Where, full_id, known_functions, opened_store
from tidegate.cli.output import print_json
from tidegate.cli.text import clean
from tidegate.errors import TaskNotFoundError
from tidegate.policy.why import Waiting, why
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskRow
from tidegate.store.serving import serving as serving_now


async def tell_why(where: Where, task_id: str, as_json: bool) -> None:
    """Print what keeps a task from running, the most telling reason first.

    Raises:
        TaskNotFoundError: No such task.
    """
    async with opened_store(where) as store:
        task_id = await full_id(store, task_id)
        row = (await store.read([task_id])).get(task_id)
        if row is None:
            raise TaskNotFoundError(
                f"no task has the id {task_id}", fix="check the id; finished tasks go after 7 days"
            )
        reasons = why(await _gathered(store, where, row), await store.now())
    if as_json:
        print_json({"task_id": row.id, "state": row.state, "why": reasons})
        return
    click.echo(f"{row.state}")
    for reason in reasons:
        click.echo(f"  {clean(reason)}")


async def _gathered(store: Store, where: Where, row: TaskRow) -> Waiting:
    serving = await serving_now(store, await store.now())
    upstream = next((found for found in await store.upstreams() if found.name == row.upstream), None)
    return Waiting(
        state=row.state,
        queue=row.queue,
        function=row.function,
        upstream=row.upstream,
        due_at=row.due_at,
        held_until_at=row.held_until_at,
        held_by=row.held_by,
        message=row.message,
        gates=await store.gates(),
        in_flight=0 if upstream is None else upstream.in_flight,
        serving=serving,
        is_declared=row.function in await known_functions(store, where),
    )
