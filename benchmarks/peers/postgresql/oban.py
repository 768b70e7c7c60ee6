"""oban (the open one): 100 at once, a pool of 10 connections, uvloop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any

import uvloop
from oban import Oban, worker
from oban.schema import install

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began


@worker(queue="default")
class Noop:
    async def process(self, job: Any) -> None:
        began(job.args["number"])


class Peer(PeerQueue):
    async def create(self) -> None:
        pool = await Oban.create_pool(self.url)
        await install(pool)
        await pool.close()

    async def open(self) -> None:
        self.pool = await Oban.create_pool(self.url)
        self.oban = Oban(pool=self.pool)
        await self.oban.start()

    async def close(self) -> None:
        await self.oban.stop()
        await self.pool.close()

    async def enqueue(self, number: int) -> None:
        await self.oban.enqueue(Noop.new({"number": number}))

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self.oban.enqueue_many(Noop.new({"number": number}) for number in numbers)

    def work(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        pool = await Oban.create_pool(self.url, max_size=10)
        async with Oban(pool=pool, queues={"default": 100}):
            await stopped.wait()
        await pool.close()
