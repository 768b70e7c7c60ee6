"""A handle on one stored map. `f.map` returns it, and `app.map_handle(map_id)` makes one from an id."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidegate.domain.moments import to_datetime
from tidegate.domain.readers import Seconds, seconds_option
from tidegate.domain.states import FINAL, State
from tidegate.errors import (
    DataRemovedError,
    ResultTimeoutError,
    TaskCancelledError,
    TaskFailedError,
    UsageError,
)
from tidegate.handle import StoreSource, require_timeout
from tidegate.maps.progress import MapProgress, read_progress
from tidegate.threads.bridge import run_sync

if TYPE_CHECKING:
    from tidegate.store.map_rows import MapItemRow, MapResultRow, MapRow
    from tidegate.store.protocol import Store

R_co = TypeVar("R_co", covariant=True)

PAGE_ITEMS = 500
"""Items whose states are read together."""
PAGE_RESULTS = 50
"""Results that are read together."""
MIN_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 1.0


class MapResult(Generic[R_co]):
    """How one item of a map ended."""

    __slots__ = ("_decode", "_row", "index", "state", "task_id")

    def __init__(self, index: int, row: MapResultRow, decode: Callable[[bytes], Any]) -> None:
        self.index = index
        """The index of the item among those given to `map`, from 0."""
        self.task_id = row.task_id
        self.state = row.state
        """`succeeded`, `dead` or `cancelled`."""
        self._row = row
        self._decode = decode

    def __repr__(self) -> str:
        return f"<MapResult {self.index}: {self.state}>"

    @property
    def value(self) -> R_co:
        """What the function returned, decoded by its annotation.

        Raises:
            TaskFailedError: The item is dead.
            TaskCancelledError: It was cancelled.
            DataRemovedError: Retention removed the result before the task.
        """
        row = self._row
        if row.state is State.CANCELLED:
            raise TaskCancelledError(f"task {row.task_id} was cancelled", task_id=row.task_id)
        if row.state is State.DEAD:
            raise TaskFailedError(
                f"task {row.task_id} is dead: {row.reason}: {row.error_class} {row.message}".rstrip(),
                fix=f"see `tidegate tasks show {row.task_id}`",
                task_id=row.task_id,
                reason=row.reason,
                error_class=row.error_class,
                error_message=row.message,
            )
        if row.is_removed:
            raise DataRemovedError(
                f"the result of task {row.task_id} is no longer kept",
                fix="keep results longer: see [retention] in tidegate.toml",
                task_id=row.task_id,
                data="results",
            )
        decoded: R_co = self._decode(row.data)
        return decoded


class MapHandle(Generic[R_co]):
    """One stored map. Cheap to make, safe to keep, tied to no event loop."""

    __slots__ = ("_decode", "_source", "created", "id")

    def __init__(
        self,
        map_id: str,
        source: StoreSource,
        decode: Callable[[bytes], Any],
        *,
        created: bool | None = None,
    ) -> None:
        self.id = map_id
        """The id of the map: a UUIDv7 as text."""
        self.created = created
        """False if a map with the same key already existed; None if made from an id."""
        self._source = source
        self._decode = decode

    def __repr__(self) -> str:
        return f"MapHandle({self.id!r})"

    async def progress(self) -> MapProgress:
        """Return how many items are in each kind of state, from one snapshot of their tasks.

        Raises:
            MapNotFoundError: No such map.
        """
        store = await self._source.opened_store()
        return await read_progress(store, await self._row(store))

    async def eta(self) -> datetime | None:
        """Return when the last item ends, at the rate of the last ten minutes.

        None if no item ended in that time. If the map has ended, the moment when it ended.

        Raises:
            MapNotFoundError: No such map.
        """
        store = await self._source.opened_store()
        row = await self._row(store)
        progress = await read_progress(store, row)
        if progress.is_complete and row.ended_at is not None:
            return to_datetime(row.ended_at)
        if progress.seconds_left is None:
            return None
        return to_datetime(await store.now() + progress.seconds_left)

    async def wait(self, timeout: Seconds | None = None) -> MapProgress:
        """Wait until all items are final, with any outcome, and return the counts.

        Args:
            timeout: Seconds, a timedelta, or text such as `30s`; None waits without a limit, 0 checks once.

        Raises:
            MapNotFoundError: No such map.
            ResultTimeoutError: Some items are not final in time. They continue.
        """
        seconds = math.inf if timeout is None else seconds_option("timeout", timeout)
        store = await self._source.opened_store()
        row = await self._row(store)
        loop = asyncio.get_running_loop()
        ends_at, poll, position = loop.time() + seconds, _Poll(store), row.cursor
        while True:
            found = await store.find_unfinished_item(row.id, position)
            if found is None and position == 0:
                return await read_progress(store, row)
            position = found or 0  # an item before the cursor may have been redriven
            if found is None:
                continue
            left = ends_at - loop.time()
            if left <= 0:
                raise ResultTimeoutError(
                    f"map {self.id} has items that are not final after {seconds:g} s",
                    fix=f"it continues, so ask again; `tidegate maps show {self.id}` shows its progress",
                    task_id="",
                    seconds=seconds,
                )
            await poll.pause(left)

    async def results(self, *, ordered: bool = False) -> AsyncIterator[MapResult[R_co]]:
        """Yield how each item ended, as the items end, until all are final.

        Items that died and were cancelled are included: `result.value` raises then. Items whose tasks were
        deleted are left out.

        Args:
            ordered: Yield them in the order of the items, so that a slow item delays those after it.

        Raises:
            MapNotFoundError: No such map.
        """
        async with contextlib.aclosing(self._result_pages(ordered)) as pages:
            async for page in pages:
                for result in page:
                    yield result

    async def _result_pages(self, ordered: bool) -> AsyncGenerator[list[MapResult[R_co]], None]:
        store = await self._source.opened_store()
        row = await self._row(store)
        seen, first, poll = bytearray(row.items), 0, _Poll(store)
        while True:
            open_item = await store.find_unfinished_item(row.id, first)
            after, has_new = first - 1, False
            while page := await store.list_map_items(row.id, after=after, limit=PAGE_ITEMS):
                after = page[-1].position
                final = [item for item in page if item.state in FINAL and not seen[item.position]]
                if ordered and open_item is not None:
                    final = [item for item in final if item.position < open_item]
                for at in range(0, len(final), PAGE_RESULTS):
                    results = await self._results_of(store, final[at : at + PAGE_RESULTS])
                    for result in results:
                        seen[result.index] = 1
                    has_new = True
                    yield results
                if ordered and open_item is not None and after >= open_item:
                    break
            if open_item is None and (first == 0 or 0 not in seen):
                return
            if open_item is None:  # a dead item may have been redriven before it was read
                first = 0
                continue
            first = open_item
            if has_new:
                poll.restart()
            await poll.pause()

    async def _results_of(self, store: Store, items: Sequence[MapItemRow]) -> list[MapResult[R_co]]:
        """Return the results of these items in their order."""
        rows = {row.task_id: row for row in await store.list_map_results([item.task_id for item in items])}
        return [
            MapResult(item.position, rows[item.task_id], self._decode)
            for item in items
            if item.task_id in rows
        ]

    async def cancel(self, why: str = "") -> bool:
        """Cancel every unfinished item; running ones are asked to stop. Ended items keep their results.

        Returns False if the map has ended, or is being cancelled already.

        Args:
            why: Kept in the history of each item.

        Raises:
            MapNotFoundError: No such map.
        """
        store = await self._source.opened_store()
        from tidegate.operations import maps

        return await maps.cancel_map(store, (await self._row(store)).id, why)

    async def retry_failed(self, *, repeat_doubts: bool = False) -> int:
        """Send the dead items back to the main queue with fresh counters; return how many were sent.

        `on_complete` does not run a second time. Items whose last call may have been processed stay dead,
        unless `repeat_doubts` is true.

        Raises:
            MapNotFoundError: No such map.
            NotAcceptedError: The map is being cancelled.
        """
        store = await self._source.opened_store()
        from tidegate.operations import maps

        sent, _ = await maps.retry_failed(store, self.id, repeat_doubts=repeat_doubts)
        return sent

    async def _row(self, store: Store) -> MapRow:
        from tidegate.operations import maps

        return await maps.get_map(store, self.id)

    def progress_sync(self) -> MapProgress:
        """Same as `progress`, from sync code."""
        return run_sync(self.progress())

    def eta_sync(self) -> datetime | None:
        """Same as `eta`, from sync code."""
        return run_sync(self.eta())

    @require_timeout
    def wait_sync(self, timeout: Seconds) -> MapProgress:
        """Same as `wait`, from sync code, where the timeout must be given."""
        return run_sync(self.wait(timeout))

    def results_sync(self, *, ordered: bool = False) -> Iterator[MapResult[R_co]]:
        """Same as `results`, from sync code: each step blocks until the next result or the end of the map."""
        pages = self._result_pages(ordered)
        try:
            while (page := run_sync(anext(pages, None))) is not None:
                yield from page
        finally:
            with contextlib.suppress(UsageError):  # closed at a moment when nothing can be awaited
                run_sync(pages.aclose())

    def cancel_sync(self, why: str = "") -> bool:
        """Same as `cancel`, from sync code."""
        return run_sync(self.cancel(why))

    def retry_failed_sync(self, *, repeat_doubts: bool = False) -> int:
        """Same as `retry_failed`, from sync code."""
        return run_sync(self.retry_failed(repeat_doubts=repeat_doubts))


class _Poll:
    """Waits between two looks at a map: shortly at first, and longer the longer a look takes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seconds = MIN_POLL_SECONDS

    def restart(self) -> None:
        """Wait shortly again."""
        self._seconds = MIN_POLL_SECONDS

    async def pause(self, most: float = MAX_POLL_SECONDS) -> None:
        """Wait until the store changes, but at least and at most for a while."""
        await asyncio.sleep(min(MIN_POLL_SECONDS, most))
        await self._store.wait_for_change(max(0.0, min(self._seconds, most)))
        self._seconds = min(2 * self._seconds, MAX_POLL_SECONDS)
