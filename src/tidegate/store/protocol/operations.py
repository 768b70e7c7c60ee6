"""The part of the store contract for operations on many dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidegate.store.operation_rows import (
    FeedFacts,
    LetterChannel,
    LetterRow,
    LetterState,
    NewOperation,
    OperationRow,
    OperationState,
    Payloads,
    Sending,
    Stratum,
)
from tidegate.store.rows import ActionStatus


class Operations(Protocol):
    """Redrives and purges of many dead letters, with the letters of each redrive.

    An operation has a `revision`, which rises at each step. A step that was planned from an older revision
    does nothing. So any number of processes may advance an operation, and it sends no letter twice.
    """

    async def add_operation(self, operation: NewOperation, task_ids: Sequence[str] = ()) -> bool:
        """Store a new operation and the letters in `task_ids`; return False if it already exists."""

    async def get_operation(self, operation_id: str) -> OperationRow | None:
        """Return the operation with this id; None if it does not exist."""

    async def list_operations(
        self, *, tenant: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[OperationRow]:
        """Return operations, latest first, starting after the id `after`.

        A tenant of None means all tenants.
        """

    async def list_open_operations(self) -> list[OperationRow]:
        """Return the operations that have a next step, or letters without an outcome."""

    async def find_operation_ids(self, smallest: str, largest: str) -> list[str]:
        """Return at most two ids of operations from `smallest` to `largest`.

        Two are enough to see that a short id is not unique.
        """

    async def list_letters(
        self,
        operation_id: str,
        *,
        state: LetterState | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[LetterRow]:
        """Return the letters of a redrive in the order of their task ids, starting after the id `after`."""

    async def set_operation_state(
        self, operation_id: str, revision: int, state: OperationState, note: str
    ) -> bool:
        """Move an operation to another state; return False, and change nothing, if the revision is old."""

    async def set_operation_note(self, operation_id: str, note: str) -> None:
        """Store what an operation waits for."""

    async def choose_letters(
        self, operation: OperationRow, letters: Mapping[str, str], *, cursor: str | None = None
    ) -> bool:
        """Record letters of a redrive; return False, and change nothing, if the revision is old.

        Letters in doubt are skipped unless the settings of the operation repeat them. Letters that are no
        longer dead are left out.

        Args:
            operation: The operation, as the caller read it.
            letters: Full ids, each with the reason why it is skipped; an empty reason means that it is sent.
            cursor: The last letter of the filter's page; None keeps the stored cursor.
        """

    async def list_strata(self, operation_id: str) -> list[Stratum]:
        """Return how many letters are chosen, for each function and tenant."""

    async def begin_canary(self, operation: OperationRow, picks: Sequence[Stratum]) -> bool:
        """Mark a number of letters of each stratum as the canary; return False if the revision is old."""

    async def read_feed(self, operation: OperationRow) -> FeedFacts:
        """Return the facts that decide how many letters may be sent now."""

    async def send_letters(
        self, operation: OperationRow, channels: Sequence[LetterChannel]
    ) -> Sending | None:
        """Send up to `letters` letters of each channel, as far as gates and half the retry budget allow.

        Return what was sent; None if the operation has another revision now. A letter is skipped if it is no
        longer dead, has died again, or if another task holds its unique name. No letter goes to an upstream
        while retries wait for the budget of that upstream or of the system.
        """

    async def redrive_now(
        self, operation: NewOperation, task_ids: Sequence[str], *, args: Payloads | None = None
    ) -> dict[str, ActionStatus]:
        """Store an operation for a short list of ids and send all of them now; return a status for each id.

        One transaction. Safe to repeat: an operation that is stored already sends nothing. Unknown ids are
        refused.
        """

    async def record_outcomes(self, operation_id: str, limit: int = 500) -> int:
        """Record what became of sent letters; return how many records changed. Safe to repeat."""

    async def undo_letters(self, operation: OperationRow, limit: int = 500) -> int | None:
        """Take back letters that no worker has claimed, and drop letters that were not sent; return how many.

        A letter taken back has its earlier failure, counters, queue, arguments and age. None if the operation
        has a different revision now. 0 if no letter was left, and the operation is undone.
        """

    async def delete_old_operations(self, kept_seconds: float, limit: int = 1_000) -> int:
        """Delete up to `limit` letters of an operation that ended longer ago than this, then the operation.

        Return how many rows were deleted. An operation with letters without an outcome is kept.
        """

    async def purge_letters(
        self, operation_id: str, task_ids: Sequence[str]
    ) -> dict[str, ActionStatus] | None:
        """Delete these dead letters for a purge and count them; return a status for each id.

        None if somebody has aborted the purge, so that nothing was deleted.
        """
