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
    does nothing. So any number of processes may advance operations, and no letter is sent twice by one.
    """

    async def add_operation(self, operation: NewOperation, task_ids: Sequence[str] = ()) -> bool:
        """Store a new operation, with its letters if it has a list; return False if it exists already."""

    async def get_operation(self, operation_id: str) -> OperationRow | None:
        """Return one operation; None if there is none."""

    async def list_operations(
        self, *, tenant: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[OperationRow]:
        """Return operations, the latest first, starting after the id `after`; None as tenant means all."""

    async def list_open_operations(self) -> list[OperationRow]:
        """Return the operations that have a next step, or letters without an outcome."""

    async def find_operation_ids(self, smallest: str, largest: str) -> list[str]:
        """Return at most two ids of operations in this range."""

    async def list_letters(
        self,
        operation_id: str,
        *,
        state: LetterState | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[LetterRow]:
        """Return the letters of a redrive by task id, starting after the id `after`."""

    async def set_operation_state(
        self, operation_id: str, revision: int, state: OperationState, note: str
    ) -> bool:
        """Move an operation to another state; return whether it had this revision."""

    async def set_operation_note(self, operation_id: str, note: str) -> None:
        """Store what an operation waits for."""

    async def choose_letters(
        self, operation: OperationRow, letters: Mapping[str, str], *, cursor: str | None = None
    ) -> bool:
        """Record letters of a redrive; return whether it had this revision.

        Letters in doubt are skipped unless the settings of the operation repeat them. Those that are no
        longer dead are left out.

        Args:
            operation: As it was read.
            letters: Full ids, each with why it is skipped; empty if it is sent.
            cursor: The last letter of the filter's page; None keeps the one before.
        """

    async def list_strata(self, operation_id: str) -> list[Stratum]:
        """Return how many letters are chosen by function and tenant."""

    async def begin_canary(self, operation: OperationRow, picks: Sequence[Stratum]) -> bool:
        """Mark so many letters of each stratum as the canary; return whether it had this revision."""

    async def read_feed(self, operation: OperationRow) -> FeedFacts:
        """Return what decides how many letters may be sent now."""

    async def send_letters(
        self, operation: OperationRow, channels: Sequence[LetterChannel]
    ) -> Sending | None:
        """Send up to so many letters of each channel, as far as gates and half the retry budget allow.

        Return what was sent; None if the operation has another revision now. A letter that is no longer dead,
        has died again, or whose unique name another task holds, is skipped. Nothing goes to an upstream while
        retries wait for its budget or for the system's.
        """

    async def redrive_now(
        self, operation: NewOperation, task_ids: Sequence[str], *, args: Payloads | None = None
    ) -> dict[str, ActionStatus]:
        """Store an operation for a short list of ids and send all of them at once; return a status per id.

        One transaction. Safe to repeat: an operation that exists is not done again. Unknown ids are refused.
        """

    async def record_outcomes(self, operation_id: str, limit: int = 500) -> int:
        """Record what became of letters that were sent; return how many changed. Safe to repeat."""

    async def undo_letters(self, operation: OperationRow, limit: int = 500) -> int | None:
        """Take back letters that no worker has claimed, and drop those that were not sent; return how many.

        The dead letters are as they were before: failure, counters, queue, arguments, and age. None: the
        operation has another revision now. 0: nothing was left, and the operation is undone.
        """

    async def delete_old_operations(self, kept_seconds: float, limit: int = 1_000) -> int:
        """Delete up to so many letters of an operation that ended this long ago, then the operation.

        Return how many rows were deleted. An operation with letters without an outcome is kept.
        """

    async def purge_letters(
        self, operation_id: str, task_ids: Sequence[str]
    ) -> dict[str, ActionStatus] | None:
        """Delete these dead letters for a purge and count them; return a status per id.

        None: somebody aborted the purge, and nothing was deleted.
        """
