"""Telling a resend from a late word: was this very outcome written before?"""

from __future__ import annotations

import apsw

from tidegate.domain.outcome import Outcome, Succeeded
from tidegate.store.sqlite import query
from tidegate.store.sqlite.endings import record
from tidegate.store.sqlite.statements import load

_SQL = load("finish")


def is_resent(db: apsw.Connection, task: bytes, outcome: Outcome) -> bool:
    """Return whether this run's end was recorded in these very words.

    A worker whose run was taken up by the reaper says something else of it than the reaper did, so the
    words tell them apart where the run alone does not.
    """
    run = outcome.fence.run
    if isinstance(outcome, Succeeded):
        return query.value(db, _SQL["was_success"], (task, run)) is not None
    kept = query.row(db, _SQL["was_attempt"], (task, run))
    return kept in (record(outcome, is_cancelled=False), record(outcome, is_cancelled=True))
