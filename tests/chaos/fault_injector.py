"""Inject faults: kills, stops and drains at random, and sometimes a fault that hits everyone."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from chaos import processes
from chaos.faults import SHARED, ChaosFaultKind
from chaos.global_faults import GlobalFaultInjector
from chaos.hosts import ChaosHost
from chaos.process_logs import is_waiting
from chaos.setup import ChaosSetup

_WEIGHTS: Mapping[ChaosFaultKind, int] = {
    ChaosFaultKind.KILL_POOL: 22,
    ChaosFaultKind.KILL_CHILD: 20,
    ChaosFaultKind.KILL_SUPERVISOR: 17,
    ChaosFaultKind.KILL_WORKER: 16,
    ChaosFaultKind.KILL_CLIENT: 7,
    ChaosFaultKind.STOP_POOL: 5,
    ChaosFaultKind.STOP_SUPERVISOR: 5,
    ChaosFaultKind.STOP_BOTH: 5,
    ChaosFaultKind.DRAIN: 6,
}
_KILL_SHARE = 0.7
"""About the share of these faults that kill a process of a worker."""
_POLL_SECONDS = 0.05
_EARLY_SHARE = 0.15
"""Share of the faults that do not wait until their host is ready."""
_SECOND_SIGNAL_SHARE = 0.3
_MID_CALL_SECONDS = 0.5
"""For a client to be in the middle of an enqueue."""


class ProcessFaultInjector:
    """Injects one fault after another until its time is over.

    Args:
        setup: The hosts and processes to hit.
        global_injector: Injects the faults that hit everyone.
    """

    def __init__(self, setup: ChaosSetup, global_injector: GlobalFaultInjector) -> None:
        self._setup = setup
        self._global_injector = global_injector
        self._plan = setup.plan
        self._rng = setup.rng
        self._fault_log = setup.fault_log
        self._running_faults: set[asyncio.Task[None]] = set()

    async def run_faults(self) -> None:
        """Inject faults for the planned time. When this returns, no process is frozen any more."""
        ends_at = time.monotonic() + self._plan.seconds
        global_faults = self._planned_global_faults()
        try:
            while (left := ends_at - time.monotonic()) > 0 or self._kills_left > 0 or global_faults:
                if global_faults and self._is_due(global_faults, left):
                    await self._finish_running_faults()
                    await self._global_injector.inject(global_faults.pop(0)[1])
                else:
                    await asyncio.sleep(self._pause(left, len(global_faults)))
                    await self._inject_one()
            await self._finish_running_faults()
        finally:
            for action in self._running_faults:
                action.cancel()
            await asyncio.gather(*self._running_faults, return_exceptions=True)
            processes.stop_all(*self._setup.run, signal.SIGCONT)

    @property
    def _kills_left(self) -> int:
        return self._plan.kills - self._fault_log.worker_kills

    def _planned_global_faults(self) -> list[tuple[float, ChaosFaultKind]]:
        """Return the faults that hit everyone, each with the remaining seconds at which it may start.

        An outage and a freeze come together, so that the system must recover only once for both; the last ones
        come at the end, after all kills.
        """
        times = self._plan.outages
        return [
            (self._plan.seconds * (times - 1 - time) / times, kind)
            for time in range(times)
            for kind in SHARED
        ]

    def _is_due(self, global_faults: Sequence[tuple[float, ChaosFaultKind]], left: float) -> bool:
        is_last = len(global_faults) <= len(SHARED)
        return left <= global_faults[0][0] + (
            self._global_fault_seconds(len(global_faults)) if is_last else 0.0
        ) and not (is_last and self._kills_left > 0)

    def _global_fault_seconds(self, global_faults: int) -> float:
        """Return about how long this many of them take."""
        return global_faults * (self._plan.outage_seconds + self._plan.observation_seconds + 0.5)

    def _pause(self, left: float, global_faults: int) -> float:
        """Return the pause before the next fault, so that the planned kills fit into the remaining time."""
        actions = max(1.0, 1.1 * self._kills_left / _KILL_SHARE)
        return max(0.1, (left - self._global_fault_seconds(global_faults)) / actions) * self._rng.uniform(
            0.3, 1.7
        )

    # --- single faults ---------------------------------------------------------------------------------

    async def _inject_one(self) -> None:
        """Do one thing to one host; some go on in the background, while others have their turn."""
        kind = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if kind is ChaosFaultKind.KILL_CLIENT:
            await self._kill_client_mid_call()
            return
        host = self._choose_host()
        if host is None:
            return
        if kind is ChaosFaultKind.DRAIN:
            self._run_in_background(host, self._drain(host))
        elif kind in {ChaosFaultKind.STOP_POOL, ChaosFaultKind.STOP_SUPERVISOR, ChaosFaultKind.STOP_BOTH}:
            self._run_in_background(host, self._stop(host, kind))
        else:
            self._KILLS[kind](self, host)

    def _choose_host(self) -> ChaosHost | None:
        free = [
            host for host in self._setup.workers if not host.is_in_use and host.current_process is not None
        ]
        if self._rng.random() >= _EARLY_SHARE:  # on a slow machine, most would only hit what just starts
            free = [host for host in free if host.pools()]
        return self._rng.choice(free) if free else None

    async def _kill_client_mid_call(self) -> None:
        """Kill a client, if possible while it waits for an answer."""
        host = self._rng.choice(self._setup.clients)
        ends_at = time.monotonic() + _MID_CALL_SECONDS
        while time.monotonic() < ends_at and not is_waiting(host.log_path.with_suffix(".ndjson")):
            await asyncio.sleep(0)
        self._setup.kill_client(host)

    def _kill_pool(self, host: ChaosHost) -> None:
        if pools := host.pools():
            self._setup.kill(ChaosFaultKind.KILL_POOL, host, [self._rng.choice(pools)])

    def _kill_child(self, host: ChaosHost) -> None:
        """Kill a slot; a pool process that has none, as it runs no `def`, will do."""
        children = host.children()
        if not children:
            self._kill_pool(host)
        else:
            self._setup.kill(ChaosFaultKind.KILL_CHILD, host, [self._rng.choice(children)])

    def _kill_supervisor(self, host: ChaosHost) -> None:
        assert host.current_process is not None
        pools = host.pools()
        host.expect_end()
        self._setup.kill(ChaosFaultKind.KILL_SUPERVISOR, host, [host.current_process.pid])
        self._run_in_background(None, self._watch_orphans(host, pools))

    def _kill_worker(self, host: ChaosHost) -> None:
        """Kill all processes of a worker at the same time, so that none notices that the others die."""
        host.expect_end()
        host.send(host.all_pids(), signal.SIGSTOP)
        self._setup.kill(ChaosFaultKind.KILL_WORKER, host, host.all_pids())

    _KILLS: Mapping[ChaosFaultKind, Callable[[ProcessFaultInjector, ChaosHost], None]] = {
        ChaosFaultKind.KILL_POOL: _kill_pool,
        ChaosFaultKind.KILL_CHILD: _kill_child,
        ChaosFaultKind.KILL_SUPERVISOR: _kill_supervisor,
        ChaosFaultKind.KILL_WORKER: _kill_worker,
    }

    async def _watch_orphans(self, host: ChaosHost, pools: Sequence[int]) -> None:
        """Check that pool processes without a supervisor end by themselves."""
        began_at, bound = time.time(), self._plan.orphan_process_bound
        while left := [pid for pid in pools if processes.is_alive(pid)]:
            now = time.time()
            if now - began_at > bound + self._fault_log.stalled_seconds(began_at, now):
                self._fault_log.record_problem(
                    f"{host.name}: pool process {left[0]} did not end without its supervisor"
                )
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _stop(self, host: ChaosHost, kind: ChaosFaultKind) -> None:
        """Stop pool process, supervisor or both for longer than the lease, then let them go on."""
        assert host.current_process is not None
        pids = [] if kind is ChaosFaultKind.STOP_SUPERVISOR else host.pools()
        if kind is not ChaosFaultKind.STOP_POOL:
            pids.append(host.current_process.pid)
        self._rng.shuffle(pids)
        seconds = self._plan.lease * self._rng.uniform(1.1, 3.0)
        fault = self._fault_log.record_start(kind, host.name, pids, f"for {seconds:.1f} s")
        host.send(pids, signal.SIGSTOP)
        self._setup.log(str(fault))
        try:
            await asyncio.sleep(seconds)
        finally:
            host.send(pids, signal.SIGCONT)
            fault.ended_at = time.time()

    async def _drain(self, host: ChaosHost) -> None:
        """Ask a worker to stop, sometimes twice; it must end well and in time."""
        current_process = host.current_process
        assert current_process is not None
        host.expect_end()
        fault = self._fault_log.record_start(ChaosFaultKind.DRAIN, host.name, [current_process.pid])
        host.send([current_process.pid], signal.SIGTERM)
        self._setup.log(str(fault))
        if self._rng.random() < _SECOND_SIGNAL_SHARE:
            await asyncio.sleep(self._rng.uniform(0.0, self._plan.lease / 2))
            host.send([current_process.pid], signal.SIGTERM)
        while not current_process.ended.is_set():
            now = time.time()
            allowed = self._plan.drain_bound + self._fault_log.stalled_seconds(fault.began_at, now)
            if now - fault.began_at > allowed:  # the checks report it
                host.send([current_process.pid], signal.SIGKILL)
                break
            await asyncio.sleep(_POLL_SECONDS)
        else:
            if not host.ended_well(current_process.code):
                self._fault_log.record_problem(
                    f"{host.name} ended with code {current_process.code} after SIGTERM"
                )
        fault.ended_at = time.time()

    def _run_in_background(self, host: ChaosHost | None, work: Coroutine[Any, Any, None]) -> None:
        """Run a fault in the background; no other fault hits that host during it."""

        async def action() -> None:
            try:
                await work
            finally:
                if host is not None:
                    host.is_in_use = False

        if host is not None:
            host.is_in_use = True
        job = asyncio.create_task(action(), name=f"chaos fault on {host.name if host else 'no host'}")
        self._running_faults.add(job)
        job.add_done_callback(self._running_faults.discard)

    async def _finish_running_faults(self) -> None:
        while self._running_faults:
            await asyncio.gather(*self._running_faults)
