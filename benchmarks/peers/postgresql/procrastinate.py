"""procrastinate: 30 at once, a pool of 20 connections, LISTEN/NOTIFY, uvloop."""

from __future__ import annotations

from collections.abc import Sequence

import procrastinate
import uvloop

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began


class Peer(PeerQueue):
    def __init__(self) -> None:
        super().__init__()
        connector = procrastinate.PsycopgConnector(conninfo=self.url, max_size=20)
        self.app = procrastinate.App(connector=connector)

        @self.app.task(name="noop")
        async def noop(number: int) -> None:
            began(number)

        self.noop = noop

    async def create(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self.app.open_async()

    async def close(self) -> None:
        await self.app.close_async()

    async def enqueue(self, number: int) -> None:
        await self.noop.defer_async(number=number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self.noop.batch_defer_async(*({"number": number} for number in numbers))

    def work(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        async with self.app.open_async():
            await self.app.run_worker_async(concurrency=30)
