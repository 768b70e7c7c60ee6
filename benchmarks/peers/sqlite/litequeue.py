"""litequeue: it has no worker, so this is the loop its manual shows: pop, run, done; 10 ms asleep when empty.

It sets synchronous=NORMAL by itself, so that a power cut can lose what it has confirmed; left as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from litequeue import LiteQueue

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began


def noop(number: int) -> None:
    began(number)


class Peer(PeerQueue):
    def open(self) -> None:
        self.queue = LiteQueue(str(Path(self.url) / "litequeue.db"))

    def close(self) -> None:
        self.queue.close()

    def enqueue(self, number: int) -> None:
        self.queue.put(json.dumps({"number": number}))

    def fill(self, numbers: Sequence[int]) -> None:
        """Put many in one transaction, which its manual has no call for."""
        with self.queue.transaction():
            for number in numbers:
                self.enqueue(number)

    def work(self) -> None:
        self.open()
        while True:
            message = self.queue.pop()
            if message is None:
                time.sleep(0.01)
            else:
                noop(**json.loads(message.data))
                self.queue.done(message.message_id, claim_id=message.claim_id)
