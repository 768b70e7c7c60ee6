"""The results of a map whose items move while they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tidegate import MapHandle, State
from tidegate.domain.states import FINAL
from tidegate.store.map_rows import MapItemRow, MapResultRow, MapRow

pytestmark = pytest.mark.anyio

MAP = "01890000-0000-7000-8000-000000000000"


class Moving:
    """A store with one map of three items; its second one is redriven while the results are read."""

    def __init__(self) -> None:
        self.states = [State.SUCCEEDED, State.DEAD, State.RUNNING]
        self.coming = [{1: State.READY}, {2: State.SUCCEEDED}, {1: State.SUCCEEDED}]
        """What changes after each look for an unfinished item that finds one, and never later."""

    async def opened_store(self) -> Moving:
        return self

    async def get_map(self, map_id: str) -> MapRow:
        return MapRow(
            id=MAP, name="", function="app:f", tenant="", key=None, fingerprint=b"", items=3, max_failures=None,
            on_complete=None, created_at=0.0, cursor=0, cancelled_at=None, cancel_why="", ended_at=None,
            succeeded=0, dead=0, cancelled=0, callback_id=None,
        )  # fmt: skip

    async def find_unfinished_item(self, map_id: str, position: int = 0) -> int | None:
        open_items = [at for at in range(position, 3) if self.states[at] not in FINAL]
        if not open_items:
            return None
        for at, state in self.coming.pop(0).items():
            self.states[at] = state
        return open_items[0]

    async def list_map_items(self, map_id: str, *, after: int, limit: int) -> list[MapItemRow]:
        return [MapItemRow(at, str(at), self.states[at], "") for at in range(after + 1, 3)]

    async def list_map_results(self, task_ids: Sequence[str]) -> list[MapResultRow]:
        return [
            MapResultRow(each, self.states[int(each)], each.encode(), False, "", "", "") for each in task_ids
        ]

    async def wait_for_change(self, seconds: float) -> None:
        return None


@pytest.mark.parametrize("ordered", [False, True])
async def test_an_item_that_is_redriven_while_results_are_read_is_not_left_out(ordered: bool) -> None:
    store: Any = Moving()
    handle: MapHandle[int] = MapHandle(MAP, store, int)
    results = [(result.index, result.value) async for result in handle.results(ordered=ordered)]
    assert sorted(results) == [(0, 0), (1, 1), (2, 2)]
