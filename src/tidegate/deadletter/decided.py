"""Redrives dead letters that died of a doubt, when none of their doubts waits for a person any more.

What to do follows from the store alone: the letters whose last decision is younger than their last redrive.
So it may be done by any process, at any time, and again after a kill.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from tidegate.store.operation_rows import RedriveTerms
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus

log = logging.getLogger("tidegate.doubts")

PAGE_SIZE = 100
"""The most letters in one transaction."""
FIND_LIMIT = 500
"""The most new doubts in one transaction."""


class DoubtJob:
    """The maintenance job that enters calls in doubt in the ledger, and redrives decided letters.

    Args:
        store: An open store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> bool:
        """Do both once. Return whether there are more new doubts."""
        found = await self._store.find_doubts(FIND_LIMIT)
        await redrive_decided(self._store)
        return found >= FIND_LIMIT


async def redrive_decided(store: Store, task_ids: Sequence[str] | None = None) -> list[str]:
    """Redrive decided letters, and return the ids of those that were redriven. Safe to repeat.

    A letter is left if another task holds its unique name. The next call tries again.

    Args:
        store: Holds the letters.
        task_ids: Only these tasks; None: all.
    """
    redriven: list[str] = []
    after = None
    while page := await store.list_decided_letters(task_ids=task_ids, after=after, limit=PAGE_SIZE):
        by_note: defaultdict[str, list[str]] = defaultdict(list)
        for letter in page:
            who = f"the last by {letter.decided_by}" if letter.decided_by else "the last by a late answer"
            by_note[f"every doubt is decided, {who}"].append(letter.task_id)
        for note, letters in by_note.items():
            answers = await store.redrive(letters, terms=RedriveTerms(note))
            redriven += [task_id for task_id in letters if answers[task_id] is ActionStatus.DONE]
        after = page[-1].task_id
        if task_ids is not None:
            break
    if redriven:
        log.info("redrove dead letters whose doubts are all decided: %s", ", ".join(redriven))
    return redriven
