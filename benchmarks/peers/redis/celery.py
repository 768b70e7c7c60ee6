"""celery: one prefork process, late acknowledgement (as the others do), prefetch of 100, without results."""

from __future__ import annotations

import os
import sys

from celery import Celery

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.update(task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=100)


@app.task(name="noop")
def noop(number: int) -> None:
    began(number)


class Peer(PeerQueue):
    def enqueue(self, number: int) -> None:
        noop.delay(number)

    def work(self) -> None:
        options = ["--concurrency", "1", "--without-gossip", "--without-mingle", "--loglevel", "ERROR"]
        os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", __name__, "worker", *options])
