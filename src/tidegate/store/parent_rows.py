"""The values of the store contract for tasks that wait for other tasks, their parents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidegate.domain.states import State


class ParentRow(NamedTuple):
    """A task that another task waits for."""

    task_id: str
    state: State | None
    """None: the task was deleted."""


class EndedParents(NamedTuple):
    """The parents of one page that ended, as far as a task waits for that."""

    last: str | None
    """The id after which the next page starts; None: this was the last page."""
    succeeded: tuple[str, ...]
    failed: tuple[str, ...]
    """Dead, cancelled or deleted parents of tasks that do not wait on."""


class AdmittedChildren(NamedTuple):
    """What became of the tasks that waited for parents which ended."""

    admitted: int
    """How many are ready now."""
    to_cancel: Mapping[str, str]
    """Tasks to be cancelled, each with the parent that failed."""
