"""What those who let things go wrong work with."""

from __future__ import annotations

import random
import signal
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

    def note(self, kind: Kind, host: Host, reached: frozenset[int]) -> None:
        """Write down what was done to a host at once; nothing if no process was there for it."""
        if reached:
            self.tell(str(self.journal.happened(kind, host.name, reached)))

    def kill_client(self, host: Host) -> None:
        """Kill a client, if it is there."""
        if host.life is not None:
            host.expect_end()
            self.note(Kind.KILL_CLIENT, host, host.send([host.life.pid], signal.SIGKILL))
