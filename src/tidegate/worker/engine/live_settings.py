"""Settings of a pool process that people change while it runs."""

from __future__ import annotations

from collections.abc import Callable


class LiveSettings:
    """The number of tasks that this process may run now.

    Args:
        concurrency: The pool's own number.
        on_change: Called after a change: there may be free slots.
    """

    def __init__(self, concurrency: int, on_change: Callable[[], None] = lambda: None) -> None:
        self.concurrency = concurrency
        self.is_quiet = False
        """Whether this process claims no more tasks. Running tasks continue."""
        self._on_change = on_change

    def free_slots(self, busy: int) -> int:
        """Return how many more tasks may start; 0 or less if none may."""
        return 0 if self.is_quiet else self.concurrency - busy

    def apply(self, *, concurrency: int, is_quiet: bool) -> None:
        """Change concurrency and quiet.

        With fewer slots than running tasks, no task starts until enough have ended.
        """
        self.concurrency, self.is_quiet = concurrency, is_quiet
        self._on_change()
