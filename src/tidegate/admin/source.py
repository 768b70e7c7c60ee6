"""What `app.admin` needs of an application, and readers of what its methods are given."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from tidegate.deadletter.redrive import declared_functions
from tidegate.domain.states import State
from tidegate.errors import OptionError, UsageError
from tidegate.limits.settings import LimitDeclaration
from tidegate.readers import Seconds, instant_option, seconds_option, shown, wrong
from tidegate.store.protocol import Store
from tidegate.store.short_ids import full_ids

TaskIds = str | Iterable[str]
"""One task id or several: whole ones, or their first digits where these name one task."""


class AdminSource(Protocol):
    """An application, as far as its administration needs it."""

    @property
    def functions(self) -> Mapping[str, object]:
        """The task functions that it declares, by name."""
        ...

    async def opened_store(self) -> Store:
        """Return the store, opened."""
        ...

    def declared(self) -> Sequence[LimitDeclaration]:
        """Return the limits that it declares."""
        ...


async def known_functions(source: AdminSource, store: Store) -> frozenset[str]:
    """Return the functions of this application, and of those whose workers the store has seen."""
    return await declared_functions(store) | frozenset(source.functions)


async def whole_ids(store: Store, task_ids: TaskIds) -> builtins.list[str]:
    """Return the ids that were given, each once, short ones made full.

    Raises:
        UsageError: They are no texts.
        OptionError: A short id stands for several tasks.
    """
    given = [task_ids] if isinstance(task_ids, str) else list(task_ids)
    for task_id in given:
        if not isinstance(task_id, str):
            raise UsageError(f"{shown(task_id)} is no task id", fix="give ids as text: handle.id")
    return list(dict.fromkeys(await full_ids(store, given)))


def states_option(value: State | str | Iterable[State | str] | None) -> tuple[State, ...]:
    """Return the states that were given, by value or by name; none for None."""
    given = [value] if isinstance(value, str) else list(value or ())
    try:
        return tuple(State(state) for state in given)
    except ValueError:
        raise wrong("state", value, f"use one of {', '.join(State)}, or a list of them") from None


def before_option(value: datetime | Seconds | None, now: float) -> float | None:
    """Return the moment that is meant by a datetime with a zone, or by an age such as `7d`."""
    if value is None:
        return None
    return (
        instant_option("before", value)
        if isinstance(value, datetime)
        else now - seconds_option("before", value)
    )


def require_names(given: Mapping[str, object], names: Collection[str]) -> None:
    """Raise unless all these options exist."""
    for name in given:
        if name not in names:
            raise OptionError(
                f"there is no option {shown(name)}",
                fix=f"use one of {', '.join(names)}",
                option=name,
                value=given[name],
            )
