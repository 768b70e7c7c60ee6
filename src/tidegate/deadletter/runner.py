"""The maintenance job that advances redrives. Any number of processes may run it at the same time."""

from __future__ import annotations

import logging
from typing import assert_never

from tidegate.deadletter.policy.batch import plan_batch
from tidegate.deadletter.policy.canary import pick_canary
from tidegate.deadletter.policy.judgement import Judgement, Verdict, judge_canary, judge_feeding
from tidegate.domain.text import counted, format_duration
from tidegate.errors import StoreError
from tidegate.store.live_workers import declared_functions, load_live_workers
from tidegate.store.operation_rows import (
    FeedFacts,
    OperationRow,
    OperationState,
    Sending,
)
from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.operations")

PAGE_SIZE = 100
"""The most letters in one transaction. Transactions of 500 slowed other tasks on SQLite by a fifth."""
SILENT_PURGE_SECONDS = 60.0
"""The process of a purge that made no progress for this long counts as lost."""


class OperationRunner:
    """Takes the next step of every open operation.

    The job plans each step from what it has read. The store refuses a step if another process has advanced
    the operation since then, so no leader is needed.

    Args:
        store: Holds the operations.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._broken: set[str] = set()
        """Operations whose step failed; each is logged once."""

    async def run_once(self) -> bool:
        """Take one step of each operation. Return whether some operation has more to do at once.

        Raises:
            StoreError: The store is unreachable.
        """
        has_more = False
        for operation in await self._store.list_open_operations():
            try:
                has_more |= await self.advance(operation)
                self._broken.discard(operation.id)
            except StoreError:
                raise
            except Exception as error:  # one bad operation must not stop the others
                if operation.id not in self._broken:
                    self._broken.add(operation.id)
                    log.exception("operation %s cannot go on: %s", operation.id, error)
        return has_more

    async def advance(self, operation: OperationRow) -> bool:
        """Take the next step of one operation. Return whether it has more to do at once.

        Raises:
            StoreError: The store is unreachable.
        """
        match operation.state:
            case OperationState.CHOOSING:
                return await self._choose(operation)
            case OperationState.CANARY | OperationState.FEEDING:
                return await self._feed(operation)
            case OperationState.UNDOING:
                return await self._store.undo_letters(operation, PAGE_SIZE) != 0
            case OperationState.PURGING:
                return await self._end_silent_purge(operation)
            case (
                OperationState.DONE | OperationState.STOPPED | OperationState.ABORTED | OperationState.UNDONE
            ):
                return await self._store.record_outcomes(operation.id, PAGE_SIZE) >= PAGE_SIZE
        assert_never(operation.state)

    # --- the steps of a redrive ---

    async def _choose(self, operation: OperationRow) -> bool:
        """Record one page of the letters that match; once all are recorded, record the canary."""
        if operation.filter is None:
            return await self._pick_canary(operation)
        page = await self._store.list_dead_letters(operation.filter, after=operation.cursor, limit=PAGE_SIZE)
        if not page:
            return await self._pick_canary(operation)
        declared = await declared_functions(self._store, operation.settings.functions)
        letters = {
            letter.task_id: ""
            if letter.function in declared
            else f"no application declares {letter.function}"
            for letter in page
        }
        await self._store.choose_letters(operation, letters, cursor=page[-1].task_id)
        return True

    async def _pick_canary(self, operation: OperationRow) -> bool:
        strata = await self._store.list_strata(operation.id)
        if not strata:
            await self._end(operation, OperationState.DONE, "no letter can be sent")
            return False
        await self._store.begin_canary(operation, pick_canary(strata))
        return True

    async def _feed(self, operation: OperationRow) -> bool:
        """Send the next batch, unless the first attempts of earlier letters forbid it."""
        await self._store.record_outcomes(operation.id, PAGE_SIZE)
        facts = await self._store.read_feed(operation)
        judgement = _judge(operation, facts)
        if judgement.verdict is Verdict.STOP:
            await self._end(operation, OperationState.STOPPED, judgement.why)
            return False
        if operation.state is OperationState.CANARY and judgement.verdict is Verdict.GO_ON:
            return await self._store.set_operation_state(
                operation.id, operation.revision, OperationState.FEEDING, ""
            )
        if not facts.channels and operation.state is OperationState.FEEDING:
            if not facts.untried:
                await self._end(operation, OperationState.DONE, "")
            return False
        return await self._send(operation, facts)

    async def _send(self, operation: OperationRow, facts: FeedFacts) -> bool:
        """Send one batch. Return whether letters were sent, so that the next batch may follow."""
        workers = await load_live_workers(self._store, facts.now)
        plan = plan_batch(facts, workers, unfinished=operation.unfinished)
        sending = await self._store.send_letters(operation, plan.channels) if plan.channels else Sending()
        if sending is None:
            return False
        note = plan.waits_for or _held_note(sending) or _canary_note(operation, facts)
        if note != operation.note:
            await self._store.set_operation_note(operation.id, note)
        return sending.sent > 0

    async def _end(self, operation: OperationRow, state: OperationState, why: str) -> None:
        if await self._store.set_operation_state(operation.id, operation.revision, state, why):
            level = logging.WARNING if state is OperationState.STOPPED else logging.INFO
            log.log(
                level,
                "%s %s by %s: %s%s; %s sent",
                operation.kind,
                operation.id,
                operation.started_by,
                state,
                f" ({why})" if why else "",
                counted(operation.sent, "letter"),
            )

    async def _end_silent_purge(self, operation: OperationRow) -> bool:
        if await self._store.now() - operation.changed_at >= SILENT_PURGE_SECONDS:
            await self._end(operation, OperationState.STOPPED, "the process that ran it has ended")
        return False


def _judge(operation: OperationRow, facts: FeedFacts) -> Judgement:
    settings = operation.settings
    if operation.state is OperationState.CANARY:
        return judge_canary(
            facts.first_tries,
            facts.canary_pending,
            stop_above=settings.stop_above,
            seconds=0.0 if operation.canary_at is None else facts.now - operation.canary_at,
            limit_seconds=settings.canary_seconds,
        )
    return judge_feeding(facts.first_tries, stop_above=settings.stop_above)


def _held_note(sending: Sending) -> str:
    """Return what held letters back, for people; empty if nothing did."""
    return {
        "": "",
        "retries": "retries of other tasks spend the retry budget first",
        "gate": "a gate is closed",
        "upstream": "its half of the upstream's retry budget is spent",
        "system": "its half of the system's retry budget is spent",
    }[sending.held_by]


def _canary_note(operation: OperationRow, facts: FeedFacts) -> str:
    if operation.state is not OperationState.CANARY:
        return ""
    limit = format_duration(operation.settings.canary_seconds)
    return f"waits for {counted(facts.canary_pending, 'first attempt')} of the canary, {limit} at most"
