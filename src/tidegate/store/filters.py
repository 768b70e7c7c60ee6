"""What a filter of tasks means, in the words of the statements."""

from __future__ import annotations

from tidegate.domain.states import WAITING, State
from tidegate.store.rows import TaskFilter
from tidegate.store.text import storable, to_json


def filter_parameters(which: TaskFilter) -> tuple[str | float | None, ...]:
    """Return queue, function, tenant, reason, error class, moment and labels as statements want them."""
    texts = (which.queue, which.function, which.tenant, which.reason, which.error_class)
    labels = {storable(name): storable(value) for name, value in which.labels.items()}
    return (*(None if text is None else storable(text) for text in texts), which.before, to_json(labels))


def places_of(state: State) -> tuple[str, ...]:
    """Return where tasks of a state are: the names of the statements of `list_tasks` that find them."""
    if state in WAITING:
        return ("waiting", "staged") if state is State.SCHEDULED else ("waiting",)
    return ("ready", "staged") if state is State.READY else (str(state),)
