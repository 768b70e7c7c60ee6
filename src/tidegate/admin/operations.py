"""`app.admin.operations`."""

from __future__ import annotations

import builtins

from tidegate.admin.operation_values import Operation, RedrivenLetter, operation, redriven_letter
from tidegate.admin.source import AdminSource
from tidegate.admin.tasks import MOST_LISTED
from tidegate.domain.readers import choice_option, whole_option
from tidegate.operations import bulk
from tidegate.operations.pauses import current_user
from tidegate.store.operation_rows import LetterState
from tidegate.threads.bridge import run_sync

_THROUGH = "app.admin"


class OperationAdmin:
    """List, follow, abort and undo redrives and purges of dead letters. Ids may be short."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(self, *, after: str | None = None, limit: int = 50) -> builtins.list[Operation]:
        """Return operations, the latest first.

        Args:
            after: The last id of the page before.
            limit: 1 to 1,000.

        Raises:
            OptionError: A value is invalid.
            OperationNotFoundError: No operation has the id `after`.
        """
        limit = whole_option("limit", limit, most=MOST_LISTED)
        store = await self._source.opened_store()
        last = None if after is None else (await bulk.get_operation(store, after)).id
        return [operation(row) for row in await store.list_operations(after=last, limit=limit)]

    def list_sync(self, *, after: str | None = None, limit: int = 50) -> builtins.list[Operation]:
        """Same as `list`, from sync code."""
        return run_sync(self.list(after=after, limit=limit))

    async def get(self, operation_id: str) -> Operation:
        """Return one operation.

        Raises:
            OperationNotFoundError: No operation has this id.
        """
        return operation(await bulk.get_operation(await self._source.opened_store(), operation_id))

    def get_sync(self, operation_id: str) -> Operation:
        """Same as `get`, from sync code."""
        return run_sync(self.get(operation_id))

    async def letters(
        self,
        operation_id: str,
        *,
        state: LetterState | str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> builtins.list[RedrivenLetter]:
        """Return the letters of a redrive with their outcomes, by task id. A purge keeps no letters.

        Args:
            operation_id: The operation.
            state: Only letters in this state, such as `"died"`.
            after: The last task id of the page before.
            limit: 1 to 1,000.

        Raises:
            OptionError: A value is invalid.
            OperationNotFoundError: No operation has this id.
        """
        limit = whole_option("limit", limit, most=MOST_LISTED)
        wanted = None if state is None else LetterState(choice_option("state", state, LetterState))
        store = await self._source.opened_store()
        found = await bulk.get_operation(store, operation_id)
        rows = await store.list_letters(found.id, state=wanted, after=after, limit=limit)
        return [redriven_letter(row) for row in rows]

    def letters_sync(
        self,
        operation_id: str,
        *,
        state: LetterState | str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> builtins.list[RedrivenLetter]:
        """Same as `letters`, from sync code."""
        return run_sync(self.letters(operation_id, state=state, after=after, limit=limit))

    async def abort(self, operation_id: str, *, by: str = "") -> Operation:
        """Stop an operation: it sends or deletes no more letters. Letters that were sent go on.

        Raises:
            NotAcceptedError: The operation has ended.
            OperationNotFoundError: No operation has this id.
        """
        store = await self._source.opened_store()
        return operation(await bulk.abort(store, operation_id, by=by or current_user(_THROUGH)))

    def abort_sync(self, operation_id: str, *, by: str = "") -> Operation:
        """Same as `abort`, from sync code."""
        return run_sync(self.abort(operation_id, by=by))

    async def undo(self, operation_id: str, *, by: str = "") -> Operation:
        """Stop a redrive, and turn the letters that have not started back into dead letters.

        The letters' failures, counters, queue, arguments and age are as before.

        Raises:
            NotAcceptedError: The operation is a purge, or all of its letters have started.
            OperationNotFoundError: No operation has this id.
        """
        store = await self._source.opened_store()
        return operation(await bulk.undo(store, operation_id, by=by or current_user(_THROUGH)))

    def undo_sync(self, operation_id: str, *, by: str = "") -> Operation:
        """Same as `undo`, from sync code."""
        return run_sync(self.undo(operation_id, by=by))
