"""dramatiq: one worker process of eight threads, as its command starts them, without results."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_URL"]))


@dramatiq.actor(actor_name="noop")
def noop(number: int) -> None:
    began(number)


class Peer(PeerQueue):
    def enqueue(self, number: int) -> None:
        noop.send(number)

    def work(self) -> None:
        command = [sys.executable, "-m", "dramatiq", __name__, "--processes", "1", "--threads", "8"]
        os.execv(sys.executable, command)
