"""The claimer goes on whatever the store says: a worker that claims no more would look alive."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from tidegate import Pool
from tidegate.errors import StoreUnavailableError
from tidegate.store.protocol import Store
from tidegate.store.rows import Claim, ClaimAsk
from tidegate.worker.claimer import Claimer

pytestmark = pytest.mark.anyio


class StoreThatGoesAway:
    """Answers claims with nothing; every wait for a change fails."""

    def __init__(self) -> None:
        self.claims = 0
        self.claimed_often = asyncio.Event()

    async def claim(self, ask: ClaimAsk) -> Claim:
        self.claims += 1
        if self.claims == 3:
            self.claimed_often.set()
        return Claim(())

    async def lost_claims(self, worker_id: str, known: Any) -> list[Any]:
        return []

    async def changed(self, timeout_seconds: float) -> None:
        raise StoreUnavailableError("the connection is gone")


async def test_a_wait_for_changes_that_fails_does_not_end_the_claiming() -> None:
    store = StoreThatGoesAway()
    claimer = Claimer(
        store=cast("Store", store),
        pool=Pool(poll_interval=0.01),
        worker_id="w",
        functions={},
        free=lambda: 1,
        may_start=lambda: True,
        take=lambda task: None,
        known=list,
        give_back=lambda fence: None,
        rng=random.Random(1),
    )
    claiming = asyncio.create_task(claimer.run())
    async with asyncio.timeout(20):
        await store.claimed_often.wait()
    assert not claiming.done()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
