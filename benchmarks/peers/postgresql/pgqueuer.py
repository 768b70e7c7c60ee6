"""pgqueuer: asyncpg, uvloop as its own command uses, batches of 100."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began


class Peer(PeerQueue):
    async def create(self) -> None:
        connection = await asyncpg.connect(self.url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def close(self) -> None:
        await self.connection.close()

    async def enqueue(self, number: int) -> None:
        await self.queries.enqueue("noop", b"%d" % number)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self.queries.enqueue(
            ["noop"] * len(numbers), [b"%d" % number for number in numbers], [0] * len(numbers)
        )

    def work(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.url)))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)

        @queue.entrypoint("noop")
        async def noop(job: Job) -> None:
            began(int(job.payload or b""))

        await queue.run(batch_size=100, dequeue_timeout=timedelta(seconds=30))
