"""One simulated run: machines, clients, faults, then calm; and what everyone says of it afterwards.

Not simulated: supervisors and pool processes, child slots, threads. A worker here is the embedded one, in
its machine's own loop; whoever starts it anew stands for a supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidegate.domain.ids import IdMaker
from tidegate.domain.states import FINAL, State
from tidegate.store.rows import TaskFilter
from tidegate.store.sqlite.clock import HighWaterClock
from tidegate.store.sqlite.inline import InlineRunner
from tidegate.store.sqlite.store import SqliteStore
from tidegate.testing.checker import read_record
from tidegate.testing.simulation.breakage import Breakage
from tidegate.testing.simulation.clients import Client
from tidegate.testing.simulation.faulty import FaultyStore, Weather, drizzle_of
from tidegate.testing.simulation.hosts import Host
from tidegate.testing.simulation.journal import Journal
from tidegate.testing.simulation.machine import Machine, MachineLoop
from tidegate.testing.simulation.nemesis import Nemesis
from tidegate.testing.simulation.plan import FaultKind, Plan, set_scene
from tidegate.testing.simulation.tasks import TaskMaker
from tidegate.testing.simulation.told import Told
from tidegate.testing.simulation.worker_process import WorkerProcess
from tidegate.testing.virtual_time import EPOCH, run_virtually

CLIENTS = 2
CALM_BEFORE_CRASH = 6.0
"""Longer than any pause after a failure: the reapers make their passes again."""
_LOOK_SECONDS = 0.5
_ON_THEIR_WAY = 10
"""Tasks that clients may still send when the faults stop."""
_NOT_FINAL = tuple(state for state in State if state not in FINAL)


def run_plan(plan: Plan) -> Told:
    """Run a plan from its beginning to its end, on a database of its own in memory where there is some."""
    with _quiet(), tempfile.TemporaryDirectory(prefix="tidegate-simulation-", dir=_memory()) as directory:
        world = World(plan, Path(directory) / "queue.db")
        try:
            return run_virtually(world.run(), world.loop)
        finally:
            world.close()


class World:
    """Everything in one run.

    Args:
        plan: What to run.
        path: Where the database shall be.
    """

    def __init__(self, plan: Plan, path: Path) -> None:
        self._plan = plan
        self._path = path
        self._rng = random.Random(plan.seed)
        self.scene = set_scene(plan, self._fork())
        self.loop = MachineLoop()
        self.loop.set_exception_handler(self._uncaught)
        self._clock_offset = 0.0
        self.journal = Journal(self.loop.time, HighWaterClock(wall=self._wall, steady=self.loop.time))
        self._sky = Weather()
        self._stores: list[FaultyStore] = []
        self._processes: dict[str, WorkerProcess] = {}
        self._clients: dict[str, Client] = {}
        self._drizzle = drizzle_of(self.scene.faults, self.scene.drizzle)
        self._workers = [self._host(f"w{n}", self._run_worker) for n in range(1, self.scene.workers + 1)]
        self._client_hosts = [self._host(f"c{n}", self._run_client) for n in range(1, CLIENTS + 1)]
        make_id = IdMaker(lambda: int(self._wall() * 1000), self._fork().getrandbits)
        self._tasks = TaskMaker(
            plan.tasks,
            lease=self.scene.lease,
            rng=self._fork(),
            make_id=make_id,
            breaks=FaultKind.BROKEN in self.scene.faults,
        )
        if FaultKind.BROKEN in self.scene.faults:
            self.journal.breakage = Breakage(
                self._fork(), self.scene.brokenness, self.loop.jump, self.journal.injected
            )
        self._own = SqliteStore(path, runner=InlineRunner(path), clock=self.journal.store_now)

    async def run(self) -> Told:
        """Run the plan."""
        await self._own.open()
        hosts = (*self._workers, *self._client_hosts)
        living = [asyncio.create_task(host.live(), name=f"host {host.name}") for host in hosts]
        await self._trouble(living)
        await self._last_crash()
        calm_at = self.loop.time()
        bound = self.scene.settle_bound(len(await self._open_tasks()) + _ON_THEIR_WAY)
        settled_after = await self._settled(calm_at, bound)
        waiting = await self._results_told()
        told = Told(
            plan=self._plan,
            scene=self.scene,
            journal=self.journal,
            record=await read_record(self._own),
            faults_in_store=tuple(await self._own.check()),
            calm_at=calm_at,
            settled_after=settled_after,
            settle_bound=bound,
            waiting=waiting,
            deaths={m.name: m.died_at for host in hosts for m in host.machines if m.died_at is not None},
            steps=self.loop.steps,
            virtual_seconds=self.loop.time(),
        )
        await self._end(living)
        return told

    async def _trouble(self, living: Sequence[asyncio.Task[None]]) -> None:
        """Let clients, workers and the nemesis go on for the planned time; then end every fault."""
        nemesis = self._nemesis()
        harm = [asyncio.create_task(nemesis.run(), name=f"nemesis {n}") for n in range(2)]
        await asyncio.sleep(self.scene.phase_seconds)
        for job in harm:
            job.cancel()
        for end in await asyncio.gather(*harm, return_exceptions=True):
            if isinstance(end, Exception):
                raise end
        for job in living:
            if job.done():
                job.result()
        nemesis.calm()
        self._drizzle.errors = self._drizzle.lost_answers = 0.0
        if self.journal.breakage is not None:
            self.journal.breakage.chance = 0.0

    async def _last_crash(self) -> None:
        """Let one worker die when nothing hinders the others: its runs must be found in the stated time."""
        if FaultKind.CRASH not in self.scene.faults:
            return
        await asyncio.sleep(CALM_BEFORE_CRASH + 3 * self.scene.timings.reap)
        running = [row.worker_id for row in await self._own.list_tasks(TaskFilter(states=(State.RUNNING,)))]
        busy = [self.journal.workers[worker_id] for worker_id in running if worker_id is not None]
        hosts = [host for host in self._workers if host.machine is not None and host.machine.name in busy]
        if hosts:
            hosts[0].crash(0)

    def close(self) -> None:
        """Let go of every connection."""
        for store in self._stores:
            _run_at_once(store.close())
        _run_at_once(self._own.close())

    # --- the end ---

    async def _open_tasks(self) -> list[str]:
        rows = await self._own.list_tasks(TaskFilter(states=_NOT_FINAL), limit=1_000)
        return [row.id for row in rows]

    async def _settled(self, calm_at: float, bound: float) -> float:
        """Wait until clients are done and every task is final, or for as long as that may take."""
        while (took := self.loop.time() - calm_at) < bound:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._clients_are_done() and not await self._open_tasks():
                break
        return took

    def _clients_are_done(self) -> bool:
        present = [host.machine for host in self._client_hosts]
        return all(
            machine is not None and machine.name in self._clients and self._clients[machine.name].is_done
            for machine in present
        )

    async def _results_told(self) -> tuple[str, ...]:
        """Wait for those who wait for results; return the tasks of those who were not told."""
        for _ in range(20):
            waiting = [task_id for client in self._clients.values() for task_id in client.waiting]
            if not waiting:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return tuple(waiting)

    async def _end(self, living: list[asyncio.Task[None]]) -> None:
        """Stop everyone, so that no coroutine is left: the dead are revived without a store to speak to."""
        self.journal.is_open = False
        self._sky.is_severed = True
        for job in living:
            job.cancel()
        await asyncio.gather(*living, return_exceptions=True)
        for host in (*self._workers, *self._client_hosts):
            for machine in host.machines:
                machine.revive()

    # --- what machines run ---

    async def _run_worker(self, machine: Machine) -> None:
        process = WorkerProcess(self.scene, machine.name, self.journal, self._fork())
        self._processes[machine.name] = process
        await process.run(self._store(machine, process.heard).as_store())

    async def _run_client(self, machine: Machine) -> None:
        client = Client(
            self._store(machine).as_store(),
            self.scene,
            self.journal,
            self._fork(),
            self._tasks,
            self.scene.phase_seconds * CLIENTS / max(1, self._plan.tasks),
        )
        self._clients[machine.name] = client
        await client.run(self.scene.phase_seconds)
        await asyncio.Event().wait()  # its waits for results go on

    def _gone(self, machine: Machine) -> None:
        self._processes.pop(machine.name, None)
        self._clients.pop(machine.name, None)

    # --- parts ---

    def _fork(self) -> random.Random:
        """Return a source of its own: so that what one part draws does not shift the others."""
        return random.Random(self._rng.getrandbits(64))

    def _host(self, name: str, process: Callable[[Machine], Coroutine[Any, Any, None]]) -> Host:
        return Host(
            name,
            loop=self.loop,
            journal=self.journal,
            rng=self._fork(),
            longest_gap=self.scene.lease / self.scene.crashiness,
            process=process,
            gone=self._gone,
        )

    def _store(self, machine: Machine, heard: Any = lambda method, answer: None) -> FaultyStore:
        host = next(h for h in (*self._workers, *self._client_hosts) if h.machine is machine)
        store = FaultyStore(
            self._path,
            clock=self._clock(),
            machine=machine.name,
            weathers=(host.weather, self._sky),
            drizzle=self._drizzle,
            rng=self._fork(),
            journal=self.journal,
            heard=heard,
        )
        self._stores.append(store)
        return store

    def _clock(self) -> Callable[[], float]:
        """Return a process's store clock: that of the host, which never goes back, or one of its own."""
        if FaultKind.SET_BACK in self.scene.faults:
            return HighWaterClock(wall=self._wall, steady=self.loop.time)
        return self.journal.store_now

    def _nemesis(self) -> Nemesis:
        return Nemesis(
            self.scene,
            workers=self._workers,
            clients=self._client_hosts,
            processes=self._processes,
            sky=self._sky,
            step_clock=self._step_clock,
            journal=self.journal,
            rng=self._fork(),
        )

    def _wall(self) -> float:
        return EPOCH + self.loop.time() + self._clock_offset

    def _step_clock(self, seconds: float) -> None:
        self._clock_offset += seconds

    def _uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self.journal.is_open:
            self.journal.loop_errors.append(f"{context.get('message')}: {context.get('exception')!r}")


def _run_at_once(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that waits for nothing, without a loop."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError(f"{work!r} waits for something")


def _memory() -> str | None:
    """Return a directory in memory, where syncing costs nothing; None where the system has none."""
    shared = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it
    return str(shared) if os.access(shared, os.W_OK) else None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the engine's log quiet: a run says thousands of times that something is away."""
    log = logging.getLogger("tidegate")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)
