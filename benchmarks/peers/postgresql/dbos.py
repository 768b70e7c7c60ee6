"""dbos: enqueued through its client, 100 workflows at once, polled each 0.1 s instead of each second."""

from __future__ import annotations

import os
import signal
import threading

from dbos import DBOS, DBOSClient

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began

VERSION = "bench"
OPTIONS = {"queue_name": "noops", "workflow_name": "noop", "app_version": VERSION}


class Peer(PeerQueue):
    def create(self) -> None:
        self._launch()
        DBOS.destroy()

    def open(self) -> None:
        self.client = DBOSClient(system_database_url=self.url)

    def close(self) -> None:
        self.client.destroy()

    def enqueue(self, number: int) -> None:
        self.client.enqueue(OPTIONS, number)

    def work(self) -> None:
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        self._launch()
        stopped.wait()
        os._exit(0)  # its own farewell waits for workflows

    def _launch(self) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "application_version": VERSION,
                "log_level": "WARNING",
            }
        )

        @DBOS.workflow(name="noop")
        def noop(number: int) -> None:
            began(number)

        DBOS.launch()
        DBOS.register_queue("noops", worker_concurrency=100, polling_interval_sec=0.1)
