"""The parts of a run that the fault injectors use."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chaos.faults import ChaosFaultKind, ChaosFaultLog
from chaos.hosts import ChaosHost
from chaos.plan import ChaosPlan


@dataclass(frozen=True, slots=True)
class ChaosSetup:
    """One run, as the fault injectors see it."""

    plan: ChaosPlan
    rng: random.Random
    """Source of all random choices."""
    workers: Sequence[ChaosHost]
    """Hosts of worker commands."""
    clients: Sequence[ChaosHost]
    fault_log: ChaosFaultLog
    """Records what was injected."""
    run: tuple[str, str]
    """Environment variable and value of every process of the run."""
    log: Callable[[str], None]
    """Logs a line for people."""

    def kill(self, kind: ChaosFaultKind, host: ChaosHost, pids: Sequence[int]) -> None:
        """Kill these processes of a host and record it; do nothing if none of them is alive."""
        began_at = time.time()
        killed = host.send(pids, signal.SIGKILL)
        if killed:
            self.log(str(self.fault_log.record(kind, host.name, killed, began_at)))

    def kill_client(self, host: ChaosHost) -> None:
        """Kill a client, if it is there."""
        if host.current_process is not None:
            host.expect_end()
            self.kill(ChaosFaultKind.KILL_CLIENT, host, [host.current_process.pid])
