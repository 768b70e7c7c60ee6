"""A retry of dead items that repeats their calls in doubt, however many these are."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.domain.step import DoubtAnswer
from tidegate.operations.doubts import repeat_open

pytestmark = pytest.mark.anyio


class Ledger:
    """A store with the open doubts of one task."""

    def __init__(self, count: int) -> None:
        self.open = list(range(1, count + 1))

    async def find_doubts(self, limit: int) -> int:
        return 0

    async def list_doubts(self, *, task_id: str, limit: int) -> list[Any]:
        return [SimpleNamespace(id=number) for number in self.open[:limit]]

    async def resolve_doubts(self, ids: Sequence[int], answer: DoubtAnswer, *, by: str, note: str) -> None:
        self.open = [number for number in self.open if number not in ids]


async def test_each_open_doubt_of_a_task_is_repeated_also_beyond_one_page() -> None:
    store: Any = Ledger(1_201)
    await repeat_open(store, ["a"], by="ada")
    assert not store.open
