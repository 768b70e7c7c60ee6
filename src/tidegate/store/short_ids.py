"""Short ids: the first digits of a task id, if only one task has them."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.domain.ids import id_or_none, id_range
from tidegate.domain.readers import shown
from tidegate.errors import OptionError, UsageError
from tidegate.store.protocol import Store

_SHOWN = 3

TaskIds = str | Iterable[str]
"""One task id or several: full ids, or first digits that only one task has."""


async def full_ids(store: Store, task_ids: TaskIds, *, tenant: str | None = None) -> list[str]:
    """Return the full ids of short ids, each once. An id that names no task is returned unchanged.

    Args:
        store: Where the tasks are.
        task_ids: Full or short ids, as people write them.
        tenant: Search only this tenant's tasks; None: all tasks.

    Raises:
        OptionError: A short id matches several tasks.
        UsageError: One of the ids is not text.
    """
    given = [task_ids] if isinstance(task_ids, str) else list(task_ids)
    for task_id in given:
        if not isinstance(task_id, str):
            raise UsageError(f"{shown(task_id)} is no task id", fix="give ids as text: handle.id")
    found = [id_or_none(text) or await _full_id(store, text, tenant) for text in given]
    return list(dict.fromkeys(found))


async def _full_id(store: Store, text: str, tenant: str | None) -> str:
    bounds = id_range(text)
    if bounds is None:
        return text
    found = await store.find_ids(*bounds, tenant=tenant, limit=_SHOWN + 1)
    if len(found) > 1:
        more = ", …" if len(found) > _SHOWN else ""
        raise OptionError(
            f"the short id {text} matches several tasks: {', '.join(found[:_SHOWN])}{more}",
            fix="give more of its digits",
            option="task_id",
            value=text,
        )
    return found[0] if found else text
