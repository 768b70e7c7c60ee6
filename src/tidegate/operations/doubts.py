"""The ledger of doubts for people: list entries, decide about them, and let their tasks go on.

A call is in doubt if it was sent and has no definite answer. A step with `in_doubt="ask"` then makes its task
a dead letter. When a person has decided about each such call of the task, the task is redriven.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict

from tidegate.codec import CODEC, encode
from tidegate.deadletter.decided import redrive_decided
from tidegate.domain.ids import IdMaker
from tidegate.domain.readers import Seconds, require_names, shown
from tidegate.domain.states import State
from tidegate.domain.step import DoubtAnswer, DoubtState
from tidegate.domain.text import counted
from tidegate.errors import DoubtNotFoundError, OptionError, UsageError
from tidegate.operations.history import past_moment
from tidegate.store.access import NewAuditEntry
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus
from tidegate.store.short_ids import full_ids
from tidegate.store.step_rows import DoubtRow

MOST_IDS = 1_000
_PAGE = 500
_WORDS = {
    DoubtAnswer.REPEAT: "repeated",
    DoubtAnswer.ACCEPT: "accepted",
    DoubtAnswer.REJECT: "rejected",
}
HOW_TO_DECIDE = "use one of: repeat, accept with a result, fail"


class DoubtFilters(TypedDict, total=False):
    """A filter of doubts; every given value must match."""

    task: str | None
    """The id of the task, or its first digits."""
    function: str | None
    """The full name of the task function."""
    upstream: str | None
    tenant: str | None
    before: datetime | Seconds | None
    """Only calls sent before this moment; a duration is an age: `"1d"` for more than a day ago."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decides about calls in doubt."""

    answer: DoubtAnswer
    data: bytes = b""
    """The encoded result, if one is accepted."""

    @property
    def word(self) -> str:
        """The state of an entry after this decision."""
        return _WORDS[self.answer]


REPEAT = Decision(DoubtAnswer.REPEAT)
"""The next run does the step again, with the same idempotency key."""
FAIL = Decision(DoubtAnswer.REJECT)
"""The step is not done again, and its task cannot go on."""


def accept(result: Any) -> Decision:
    """Return the decision that this is the result of the step.

    Args:
        result: JSON values.

    Raises:
        ArgumentsError: The value cannot be stored as the result of a step.
    """
    return Decision(DoubtAnswer.ACCEPT, encode(result, path="the accepted result"))


@dataclass(frozen=True, slots=True)
class DoubtReport:
    """What became of decisions, and of the tasks."""

    answers: Mapping[int, ActionStatus] = field(default_factory=dict)
    """By the number of the entry: `done`, `refused` (decided before) or `unknown`."""
    resumed: Sequence[str] = ()
    """The tasks that were dead letters for their doubts, and were redriven."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """How many other calls of a task wait for a decision."""
    dead: Sequence[str] = ()
    """The tasks that died of something else. The tasks stay dead letters until somebody redrives them."""


@dataclass(frozen=True, slots=True)
class DoubtChoice:
    """The doubts that a person chose."""

    rows: Sequence[DoubtRow]
    unknown: Sequence[int] = ()
    """Given numbers that no entry has."""


async def list_doubts(
    store: Store,
    filters: DoubtFilters,
    *,
    state: DoubtState | None = DoubtState.OPEN,
    after: int | None = None,
    limit: int = 50,
) -> list[DoubtRow]:
    """Return entries of the ledger that match, the oldest first; a state of None means any.

    New doubts are entered first, so that the list is complete.

    Raises:
        OptionError: A value of the filter is invalid, or a short id matches several tasks.
    """
    await store.find_doubts()
    which = await _store_filter(store, filters)
    return await store.list_doubts(state=state, after=after, limit=limit, **which)


async def get_doubt(store: Store, doubt_id: int, *, tenant: str | None = None) -> DoubtRow:
    """Return one entry of the ledger.

    Raises:
        DoubtNotFoundError: There is no such entry, or it belongs to another tenant.
    """
    found = await _entry(store, doubt_id, tenant)
    if found is None:
        raise DoubtNotFoundError(
            f"no doubt has the number {doubt_id}", fix="see them: tidegate doubts ls", doubt_id=doubt_id
        )
    return found


async def choose(
    store: Store, doubt_ids: Sequence[int] | None, filters: DoubtFilters, *, tenant: str | None = None
) -> DoubtChoice:
    """Return the entries with these numbers, or the open entries that match the filter.

    Args:
        store: Holds the ledger.
        doubt_ids: The numbers; None: the filter chooses.
        filters: The filter, which must not be empty.
        tenant: Only the entries of this tenant; None: of all.

    Raises:
        UsageError: Both or neither of numbers and a filter are given.
        OptionError: There are too many numbers, or a value of the filter is invalid.
    """
    is_filtered = any(value is not None for value in filters.values())
    if (doubt_ids is not None) + is_filtered != 1:
        raise UsageError(
            "it is not clear which doubts are meant", fix="give numbers or a filter: one of the two"
        )
    if doubt_ids is not None:
        return await _choose_by_id(store, doubt_ids, tenant)
    if tenant is not None:
        filters = {**filters, "tenant": tenant}
    await store.find_doubts()
    which = await _store_filter(store, filters)
    rows: list[DoubtRow] = []
    while page := await store.list_doubts(after=rows[-1].id if rows else None, limit=_PAGE, **which):
        rows += page
    return DoubtChoice(rows)


async def resolve(
    store: Store,
    choice: DoubtChoice,
    decision: Decision,
    *,
    by: str,
    note: str = "",
    tenant: str | None = None,
) -> DoubtReport:
    """Record a decision about these entries, and redrive the tasks that waited for it.

    Safe to repeat. If the process is killed before it has redriven a task, maintenance does that. A task that
    runs meanwhile goes on, and its next run sees the decision. A task that was purged is gone with its
    entries. A task that somebody else has redriven is not redriven again.

    Args:
        store: Holds the ledger.
        choice: The entries.
        decision: What becomes of them.
        by: Who decides.
        note: Why.
        tenant: Only entries of this tenant are changed; None: of all.
    """
    answers: dict[int, ActionStatus] = dict.fromkeys(choice.unknown, ActionStatus.UNKNOWN)
    ids = [row.id for row in choice.rows]
    for start in range(0, len(ids), _PAGE):
        answers |= await store.resolve_doubts(
            ids[start : start + _PAGE],
            decision.answer,
            data=decision.data,
            codec=CODEC,
            by=by,
            note=note,
            tenant=tenant,
        )
    decided = {row.task_id for row in choice.rows if answers[row.id] is ActionStatus.DONE}
    tasks = sorted(decided)
    resumed = await redrive_decided(store, tasks) if tasks else []
    waiting = await store.count_open_doubts(tasks)
    rows = await store.read_tasks([each for each in tasks if each not in waiting and each not in resumed])
    dead = [row.id for row in rows.values() if row.state is State.DEAD]
    return DoubtReport(answers, resumed, waiting, dead)


async def resolve_recorded(
    store: Store, choice: DoubtChoice, decision: Decision, *, by: str, note: str = ""
) -> DoubtReport:
    """Do the same as `resolve`, and write it to the audit log."""
    report = await resolve(store, choice, decision, by=by, note=note)
    make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)
    entries = [
        NewAuditEntry(make_id(), by, "", None, action, target, answer, note[:500])
        for action, target, answer in audit_facts(decision, report)
    ]
    await store.add_audit_entries(entries)
    return report


async def repeat_open(store: Store, task_ids: Sequence[str], *, by: str, note: str = "") -> None:
    """Resolve every open doubt of these tasks as repeated."""
    while await store.find_doubts(_PAGE) >= _PAGE:
        pass
    for task_id in task_ids:
        while rows := await store.list_doubts(task_id=task_id, limit=_PAGE):
            await store.resolve_doubts([row.id for row in rows], DoubtAnswer.REPEAT, by=by, note=note)


def audit_facts(decision: Decision, report: DoubtReport) -> list[tuple[str, str, str]]:
    """Return the action, target and answer of each entry, for the audit log."""
    return [
        (f"doubt {decision.word}", f"doubt {doubt_id}", str(answer))
        for doubt_id, answer in report.answers.items()
    ]


def describe_report(report: DoubtReport) -> list[str]:
    """Return what became of the tasks, for people."""
    lines = [f"task {task_id} goes on" for task_id in report.resumed]
    lines += [
        f"task {task_id} waits for {counted(count, 'more decision')}: tidegate doubts ls --task {task_id}"
        for task_id, count in report.waiting.items()
    ]
    lines += [
        f"task {task_id} died of something else: tidegate dead redrive {task_id}" for task_id in report.dead
    ]
    return lines


async def _choose_by_id(store: Store, doubt_ids: Sequence[int], tenant: str | None) -> DoubtChoice:
    wanted = list(dict.fromkeys(doubt_ids))
    if len(wanted) > MOST_IDS:
        raise OptionError(
            f"{len(wanted):,} numbers are too many", fix="use a filter", option="doubt_ids", value=len(wanted)
        )
    found = {doubt_id: await _entry(store, doubt_id, tenant) for doubt_id in wanted}
    return DoubtChoice(
        [row for row in found.values() if row is not None],
        [doubt_id for doubt_id, row in found.items() if row is None],
    )


async def _entry(store: Store, doubt_id: int, tenant: str | None) -> DoubtRow | None:
    rows = await store.list_doubts(state=None, after=doubt_id - 1, limit=1, tenant=tenant)
    return rows[0] if rows and rows[0].id == doubt_id else None


async def _store_filter(store: Store, filters: DoubtFilters) -> dict[str, Any]:
    """Return the parameters of `Store.list_doubts`."""
    require_names(filters, DoubtFilters.__annotations__)
    task, before = filters.get("task"), filters.get("before")
    for name in ("task", "function", "upstream", "tenant"):
        if not isinstance(filters.get(name), str | None):
            raise OptionError(
                f"{name}={shown(filters.get(name))} is no text",
                fix="give a name",
                option=name,
                value=filters.get(name),
            )
    return {
        "task_id": None if task is None else (await full_ids(store, task, tenant=filters.get("tenant")))[0],
        "function": filters.get("function"),
        "upstream": filters.get("upstream"),
        "tenant": filters.get("tenant"),
        "sent_before": None if before is None else past_moment("before", before, await store.now()),
    }
