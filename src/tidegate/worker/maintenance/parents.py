"""The maintenance job that admits tasks whose parents have succeeded (`using(after=…)`)."""

from __future__ import annotations

from tidegate.store.protocol import Store

PAGE_PARENTS = 2_000
"""Parents that one read looks at."""
PAGES = 10
"""Most pages of one pass. The next pass continues after them."""
PASSES_BETWEEN_CHECKS = 30


class ParentsJob:
    """Looks at the parents that tasks wait for. Each pass reads their states, so no end can be missed.

    Args:
        store: An open store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after: str | None = None
        self._passes = 0
        self.changes = 0
        """How many tasks this process has admitted or cancelled."""

    async def run_once(self) -> bool:
        """Admit or cancel the tasks whose parents ended. Return whether there is more to do at once."""
        for _ in range(PAGES):
            ended = await self._store.find_ended_parents(self._after, PAGE_PARENTS)
            self._after = ended.last
            if ended.succeeded or ended.failed:
                children = await self._store.admit(ended.succeeded, ended.failed)
                self.changes += children.admitted + len(children.to_cancel)
                for task_id, parent in children.to_cancel.items():
                    await self._store.cancel([task_id], why=f"task {parent}, which it waited for, failed")
                if children.to_cancel:
                    await self._store.remove_parents(list(children.to_cancel))
            if self._after is None:
                break
        if self._passes % PASSES_BETWEEN_CHECKS == 0:
            self.changes += await self._store.admit_left_behind()
        self._passes += 1
        return self._after is not None
