"""taskiq: the stream broker, which acknowledges, one worker process, 100 at once, without results."""

from __future__ import annotations

import os
import sys

from taskiq_redis import RedisStreamBroker

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began

broker = RedisStreamBroker(url=os.environ["BENCH_URL"])


@broker.task(task_name="noop")
async def noop(number: int) -> None:
    began(number)


class Peer(PeerQueue):
    async def create(self) -> None:
        """Make the stream's group of consumers: it reads only what comes after it."""
        await broker.startup()
        await broker.shutdown()

    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def enqueue(self, number: int) -> None:
        await noop.kiq(number)

    def work(self) -> None:
        options = ["--workers", "1", "--max-async-tasks", "100", "--log-level", "ERROR"]
        os.execv(sys.executable, [sys.executable, "-m", "taskiq", "worker", f"{__name__}:broker", *options])
