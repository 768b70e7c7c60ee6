"""Messages about tasks that became final, for the sinks that want them.

Each pass reads from where the last one stopped reading, and a little more: a task's transaction may commit
after the end that it records. The id of a message is derived from task, run and sink, so what is read twice
is stored once. All messages of a pass are stored together with its end, so none is lost if the process dies.

The first pass also reads a little from before it, so that a task that ended in the first seconds of a new
installation is sent too. A sink that is set up later also gets that much.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from tidegate.alerts.messages import body_of, moment, notice
from tidegate.alerts.sink_settings import Sink
from tidegate.domain.text import one_line
from tidegate.store.alert_rows import NewlyFinalTask, NewNotice
from tidegate.store.protocol import Store

OVERLAP_SECONDS = 120.0
"""How many seconds before the last pass are read again: more than any transaction that ends a run may
take."""
_PAGE = 1_000


async def read_task_messages(
    store: Store, sinks: Sequence[Sink], since: float | None, now: float
) -> list[NewNotice]:
    """Return the messages about tasks that became final.

    Args:
        store: Holds the tasks.
        sinks: The sinks. A sink that wants no messages about tasks costs nothing.
        since: Up to when the last pass has read; None if there was none: nothing older than the overlap is
            sent. A moment ahead of `now` comes from a clock that was set back, and counts as `now`.
        now: The present moment.
    """
    wanted = [sink for sink in sinks if sink.tasks.states]
    if not wanted:
        return []
    since = now if since is None else min(since, now)
    states = {state for sink in wanted for state in sink.tasks.states}
    found = []
    async for task in _final_tasks(store, states, since - OVERLAP_SECONDS, now):
        found += [_message(sink, task) for sink in wanted if _wants(sink, task)]
    return found


async def _final_tasks(
    store: Store, states: set[str], since: float, now: float
) -> AsyncIterator[NewlyFinalTask]:
    for is_dead in (True, False):
        if not states & ({"dead"} if is_dead else {"succeeded", "cancelled"}):
            continue
        after: NewlyFinalTask | None = None
        while page := await store.list_newly_final_tasks(
            since, now, is_dead=is_dead, after=after, limit=_PAGE
        ):
            for task in page:
                yield task
            after = page[-1]
            if len(page) < _PAGE:
                break


def _wants(sink: Sink, task: NewlyFinalTask) -> bool:
    chosen = sink.tasks
    return (
        task.state in chosen.states
        and (not chosen.queues or task.queue in chosen.queues)
        and (not chosen.functions or task.function in chosen.functions)
    )


def _message(sink: Sink, task: NewlyFinalTask) -> NewNotice:
    reason = f": {task.reason}" if task.reason else ""
    text = one_line(f"[task] {task.function} {task.task_id} in queue {task.queue} is {task.state}{reason}")
    data = {
        "task_id": task.task_id,
        "function": task.function,
        "queue": task.queue,
        "tenant": task.tenant or None,
        "state": task.state,
        "run": task.run,
        "reason": task.reason or None,
        "finished_at": moment(task.finished_at),
        "severity": "warning",
        "text": text,
        "command": f"tidegate tasks show {task.task_id}",
    }
    kind = f"task.{task.state}"
    return notice(sink.name, f"{task.task_id} {task.run}", kind, body_of(kind, task.finished_at, data))
