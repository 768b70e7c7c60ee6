"""Convert a task filter to the parameters and names of SQL statements."""

from __future__ import annotations

from tidegate.domain.states import WAITING, State
from tidegate.store.common.text import storable, to_json
from tidegate.store.rows import TaskFilter


def filter_parameters(task_filter: TaskFilter) -> tuple[str | float | None, ...]:
    """Return queue, function, tenant, reason, error class, moment and labels as parameters of a statement."""
    texts = (
        task_filter.queue,
        task_filter.function,
        task_filter.tenant,
        task_filter.reason,
        task_filter.error_class,
    )
    labels = {storable(name): storable(value) for name, value in task_filter.labels.items()}
    return (
        *(None if text is None else storable(text) for text in texts),
        task_filter.before,
        to_json(labels),
    )


def dead_letter_parameters(task_filter: TaskFilter) -> tuple[str | float | None, ...]:
    """Return the parameters of `filter_parameters`, then the fingerprint and `since`."""
    return (*filter_parameters(task_filter), task_filter.fingerprint, task_filter.since)


def statements_for(state: State) -> tuple[str, ...]:
    """Return the names of the statements of `list_tasks` that find tasks of a state."""
    if state in WAITING:
        return ("waiting", "enqueue_batch_task") if state is State.SCHEDULED else ("waiting",)
    return ("ready", "enqueue_batch_task") if state is State.READY else (str(state),)
