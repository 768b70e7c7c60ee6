"""Tidegate, on the store that `BENCH_URL` names, through its public API and its own worker command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from benchmarks.peers import lock_waits
from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began
from tidegate import Pool, Tidegate
from tidegate.internals import core_of

CONCURRENCY = 1000

_place = os.environ["BENCH_URL"]
_url = _place if "://" in _place else f"sqlite:///{_place}/queue.db"
app = Tidegate(_url, pools=[Pool(concurrency=CONCURRENCY)])
lock_waits.note_claims(core_of(app).store)


@app.task
async def noop(number: int) -> None:
    """Note that it began."""
    began(number)


class Peer(PeerQueue):
    async def create(self) -> None:
        await core_of(app).store.migrate()
        await app.aclose()

    async def open(self) -> None:
        await core_of(app).opened_store()

    async def close(self) -> None:
        await app.aclose()

    async def enqueue(self, number: int) -> None:
        await noop.enqueue(number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await app.enqueue_many(noop.prepare(number) for number in numbers)

    def work(self) -> None:
        os.execv(sys.executable, [sys.executable, "-m", "tidegate.cli", "worker", f"{__name__}:app"])
