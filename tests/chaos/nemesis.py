"""What goes wrong: kills, stops and drains at random, and now and then something that hits everyone."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from chaos import processes
from chaos.everyone import Everyone
from chaos.faults import SHARED, Kind
from chaos.hosts import Host
from chaos.ledgers import is_waiting
from chaos.scene import Scene

_WEIGHTS: Mapping[Kind, int] = {
    Kind.KILL_POOL: 22,
    Kind.KILL_SLOT: 20,
    Kind.KILL_SUPERVISOR: 17,
    Kind.KILL_WORKER: 16,
    Kind.KILL_CLIENT: 7,
    Kind.STOP_POOL: 5,
    Kind.STOP_SUPERVISOR: 5,
    Kind.STOP_BOTH: 5,
    Kind.DRAIN: 6,
}
_KILL_SHARE = 0.7
"""About the part of these acts that kill something of a worker."""
_LOOK_SECONDS = 0.05
_EARLY_SHARE = 0.15
"""Part of the acts that do not wait until their host is ready."""
_SECOND_SIGNAL_SHARE = 0.3
_AIM_SECONDS = 0.5
"""For a client to be in the middle of an enqueue."""


class Nemesis:
    """Does one thing after another until its time is over.

    Args:
        scene: To whom.
        everyone: Does what hits all at once.
    """

    def __init__(self, scene: Scene, everyone: Everyone) -> None:
        self._scene = scene
        self._everyone = everyone
        self._plan = scene.plan
        self._rng = scene.rng
        self._journal = scene.journal
        self._acts: set[asyncio.Task[None]] = set()

    async def play(self) -> None:
        """Let things go wrong for as long as planned; when this returns, nothing is stopped any more."""
        ends_at = time.monotonic() + self._plan.seconds
        hushes = self._hushes()
        try:
            while (left := ends_at - time.monotonic()) > 0 or self._kills_left > 0 or hushes:
                if hushes and self._is_due(hushes, left):
                    await self._finish_acts()
                    await self._everyone.hit(hushes.pop(0)[1])
                else:
                    await asyncio.sleep(self._pause(left, len(hushes)))
                    await self._act()
            await self._finish_acts()
        finally:
            for act in self._acts:
                act.cancel()
            await asyncio.gather(*self._acts, return_exceptions=True)
            processes.stop_all(*self._scene.run, signal.SIGCONT)

    @property
    def _kills_left(self) -> int:
        return self._plan.kills - self._journal.worker_kills

    def _hushes(self) -> list[tuple[float, Kind]]:
        """Return what hits everyone, each with the seconds that may be left when it comes.

        An outage and a freeze each time, so that everyone need be well only once for both; the last ones at
        the end, when all kills are done.
        """
        times = self._plan.outages
        return [
            (self._plan.seconds * (times - 1 - time) / times, kind)
            for time in range(times)
            for kind in SHARED
        ]

    def _is_due(self, hushes: Sequence[tuple[float, Kind]], left: float) -> bool:
        is_last = len(hushes) <= len(SHARED)
        return left <= hushes[0][0] + (self._hush_seconds(len(hushes)) if is_last else 0.0) and not (
            is_last and self._kills_left > 0
        )

    def _hush_seconds(self, hushes: int) -> float:
        """Return about how long so many of them take."""
        return hushes * (self._plan.outage_seconds + self._plan.quiet_seconds + 0.5)

    def _pause(self, left: float, hushes: int) -> float:
        """Return how long to wait before the next act, so that the planned kills fit into the time left."""
        acts = max(1.0, 1.1 * self._kills_left / _KILL_SHARE)
        return max(0.1, (left - self._hush_seconds(hushes)) / acts) * self._rng.uniform(0.3, 1.7)

    # --- one act -----------------------------------------------------------------------------------------

    async def _act(self) -> None:
        """Do one thing to one host; some go on in the background, while others have their turn."""
        kind = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if kind is Kind.KILL_CLIENT:
            await self._kill_client_in_between()
            return
        host = self._victim()
        if host is None:
            return
        if kind is Kind.DRAIN:
            self._spawn(host, self._drain(host))
        elif kind in {Kind.STOP_POOL, Kind.STOP_SUPERVISOR, Kind.STOP_BOTH}:
            self._spawn(host, self._stop(host, kind))
        else:
            self._KILLS[kind](self, host)

    def _victim(self) -> Host | None:
        free = [host for host in self._scene.workers if not host.is_busy and host.life is not None]
        ready = [host for host in free if host.pools()]
        if ready and self._rng.random() >= _EARLY_SHARE:
            free = ready
        return self._rng.choice(free) if free else None

    async def _kill_client_in_between(self) -> None:
        """Kill a client, if possible while it waits for an answer."""
        host = self._rng.choice(self._scene.clients)
        ends_at = time.monotonic() + _AIM_SECONDS
        while time.monotonic() < ends_at and not is_waiting(host.log_path.with_suffix(".ndjson")):
            await asyncio.sleep(0)
        self._scene.kill_client(host)

    def _kill_pool(self, host: Host) -> None:
        if pools := host.pools():
            self._scene.kill(Kind.KILL_POOL, host, [self._rng.choice(pools)])

    def _kill_slot(self, host: Host) -> None:
        """Kill a slot; a pool process that has none, as it runs no `def`, will do."""
        slots = host.slots()
        if not slots:
            self._kill_pool(host)
        else:
            self._scene.kill(Kind.KILL_SLOT, host, [self._rng.choice(slots)])

    def _kill_supervisor(self, host: Host) -> None:
        assert host.life is not None
        pools = host.pools()
        host.expect_end()
        self._scene.kill(Kind.KILL_SUPERVISOR, host, [host.life.pid])
        self._spawn(None, self._watch_orphans(host, pools))

    def _kill_worker(self, host: Host) -> None:
        """Kill everything of a worker at once, giving nobody the chance to see the others die."""
        host.expect_end()
        host.send(host.everything(), signal.SIGSTOP)
        self._scene.kill(Kind.KILL_WORKER, host, host.everything())

    _KILLS: Mapping[Kind, Callable[[Nemesis, Host], None]] = {
        Kind.KILL_POOL: _kill_pool,
        Kind.KILL_SLOT: _kill_slot,
        Kind.KILL_SUPERVISOR: _kill_supervisor,
        Kind.KILL_WORKER: _kill_worker,
    }

    async def _watch_orphans(self, host: Host, pools: Sequence[int]) -> None:
        """See that pool processes without a supervisor end by themselves."""
        began_at, bound = time.time(), self._plan.orphan_process_bound
        while left := [pid for pid in pools if processes.is_alive(pid)]:
            now = time.time()
            if now - began_at > bound + self._journal.stalled_seconds(began_at, now):
                self._journal.problems.append(
                    f"{host.name}: pool process {left[0]} lives on without a supervisor"
                )
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _stop(self, host: Host, kind: Kind) -> None:
        """Stop pool process, supervisor or both for longer than the lease, then let them go on."""
        assert host.life is not None
        pids = [] if kind is Kind.STOP_SUPERVISOR else host.pools()
        if kind is not Kind.STOP_POOL:
            pids.append(host.life.pid)
        self._rng.shuffle(pids)
        seconds = self._plan.lease * self._rng.uniform(1.1, 3.0)
        fault = self._journal.began(kind, host.name, pids, f"for {seconds:.1f} s")
        host.send(pids, signal.SIGSTOP)
        self._scene.tell(str(fault))
        try:
            await asyncio.sleep(seconds)
        finally:
            host.send(pids, signal.SIGCONT)
            fault.ended_at = time.time()

    async def _drain(self, host: Host) -> None:
        """Tell a worker to stop, sometimes twice; it must end in time, with exit code 0."""
        life = host.life
        assert life is not None
        host.expect_end()
        fault = self._journal.began(Kind.DRAIN, host.name, [life.pid])
        host.send([life.pid], signal.SIGTERM)
        self._scene.tell(str(fault))
        if self._rng.random() < _SECOND_SIGNAL_SHARE:
            await asyncio.sleep(self._rng.uniform(0.0, self._plan.lease / 2))
            host.send([life.pid], signal.SIGTERM)
        while not life.ended.is_set():
            now = time.time()
            allowed = self._plan.drain_bound + self._journal.stalled_seconds(fault.began_at, now)
            if now - fault.began_at > allowed:
                self._journal.problems.append(f"{host.name} did not end within {allowed:.1f} s of SIGTERM")
                host.send([life.pid], signal.SIGKILL)
                break
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            if life.code not in {0, -signal.SIGTERM}:
                self._journal.problems.append(f"{host.name} ended with code {life.code} after SIGTERM")
        fault.ended_at = time.time()

    def _spawn(self, host: Host | None, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on beside other acts; nothing else is done to that host meanwhile."""

        async def act() -> None:
            try:
                await work
            finally:
                if host is not None:
                    host.is_busy = False

        if host is not None:
            host.is_busy = True
        job = asyncio.create_task(act(), name=f"chaos act on {host.name if host else 'nobody'}")
        self._acts.add(job)
        job.add_done_callback(self._acts.discard)

    async def _finish_acts(self) -> None:
        while self._acts:
            await asyncio.gather(*self._acts)
