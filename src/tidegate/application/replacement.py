"""Which block of a test uses an application's store: blocks may be nested, but not side by side."""

from __future__ import annotations

import asyncio
import threading
from typing import Any


class Replacement:
    """A block in which an application uses another store.

    Args:
        before: What the application used before.
    """

    def __init__(self, before: dict[str, Any]) -> None:
        self.before = before
        self._thread = threading.get_ident()
        self._task = _current_task()

    def is_within(self, other: Replacement) -> bool:
        """Return whether this block began inside the other one."""
        is_of_task = other._task in (None, self._task) or other._task.done()
        return other._thread == self._thread and is_of_task


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None
