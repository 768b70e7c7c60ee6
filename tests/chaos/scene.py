"""What those who let things go wrong work with."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chaos.faults import Journal, Kind
from chaos.hosts import Host
from chaos.plan import Plan


@dataclass(frozen=True, slots=True)
class Scene:
    """One run, as seen by its nemesis."""

    plan: Plan
    rng: random.Random
    """Chooses what, whom and when."""
    workers: Sequence[Host]
    """Hosts of worker commands."""
    clients: Sequence[Host]
    journal: Journal
    """Where it is written down what was done."""
    run: tuple[str, str]
    """Environment variable and value of every process of the run."""
    tell: Callable[[str], None]
    """Says what happens, for people."""

    def kill(self, kind: Kind, host: Host, pids: Sequence[int]) -> None:
        """Kill these processes of a host and write it down; nothing if none of them is there."""
        began_at = time.time()
        killed = host.send(pids, signal.SIGKILL)
        if killed:
            self.tell(str(self.journal.happened(kind, host.name, killed, began_at)))

    def kill_client(self, host: Host) -> None:
        """Kill a client, if it is there."""
        if host.life is not None:
            host.expect_end()
            self.kill(Kind.KILL_CLIENT, host, [host.life.pid])
