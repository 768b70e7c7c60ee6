"""One simulated run: machines, clients and faults, then a time without faults, then the record of the run.

Not simulated: supervisors, pool processes, child processes, threads. A worker here is the embedded one, in
its machine's own loop; the code that restarts it stands for a supervisor.
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

from checker import read_snapshot
from harness.relations import read_maps
from harness.steps import read_recorded_steps
from simulation.clients import SimulatedClient, send_event_to
from simulation.event_log import EventLog
from simulation.fault_injector import FaultInjector
from simulation.faulty_store import SimulatedStore, StoreCondition, background_faults_of
from simulation.hosts import SimulatedHost
from simulation.machine import Machine, MachineLoop
from simulation.plan import FaultKind, SimulationPlan, make_setup
from simulation.run_record import SimulationRecord, make_record
from simulation.simulated_worker import SimulatedWorker
from simulation.tasks import TaskFactory
from simulation.user_code_faults import UserCodeFaults
from tidegate.domain.ids import IdMaker
from tidegate.domain.states import FINAL, State
from tidegate.store.rows import TaskFilter
from tidegate.store.sqlite.clock import HighWaterClock
from tidegate.store.sqlite.inline import InlineRunner
from tidegate.store.sqlite.store import SqliteStore
from tidegate.testing.virtual_time import EPOCH, run_virtually

CLIENTS = 2
SECONDS_BEFORE_LAST_CRASH = 6.0
"""Longer than any pause after a failure: the reapers make their passes again."""
_POLL_SECONDS = 0.5
_NOT_FINAL = tuple(state for state in State if state not in FINAL)


def run_plan(plan: SimulationPlan) -> SimulationRecord:
    """Run a plan from its beginning to its end, on a database of its own in memory where there is some."""
    with (
        _silence_log(),
        tempfile.TemporaryDirectory(prefix="tidegate-simulation-", dir=_memory()) as directory,
    ):
        simulation_run = SimulationRun(plan, Path(directory) / "queue.db")
        try:
            return run_virtually(simulation_run.run(), simulation_run.loop)
        finally:
            simulation_run.close()


class SimulationRun:
    """Everything in one run.

    Args:
        plan: What to run.
        path: Where the database shall be.
    """

    def __init__(self, plan: SimulationPlan, path: Path) -> None:
        self._plan = plan
        self._path = path
        self._rng = random.Random(plan.seed)
        self.setup = make_setup(plan, self._fork_rng())
        self.loop = MachineLoop()
        self.loop.set_exception_handler(self._record_uncaught)
        self._clock_offset = 0.0
        self.event_log = EventLog(self.loop.time, HighWaterClock(wall=self._wall, steady=self.loop.time))
        self._shared_condition = StoreCondition()
        self._stores: list[SimulatedStore] = []
        self._sent_events: set[str] = set()
        self._processes: dict[str, SimulatedWorker] = {}
        self._clients: dict[str, SimulatedClient] = {}
        self._background_faults = background_faults_of(self.setup.faults, self.setup.background_faults)
        self._workers = [self._host(f"w{n}", self._run_worker) for n in range(1, self.setup.workers + 1)]
        self._client_hosts = [self._host(f"c{n}", self._run_client) for n in range(1, CLIENTS + 1)]
        make_id = IdMaker(lambda: int(self._wall() * 1000), self._fork_rng().getrandbits)
        self._tasks = TaskFactory(
            left=plan.tasks,
            lease=self.setup.lease,
            rng=self._fork_rng(),
            make_id=make_id,
            has_broken_function=FaultKind.BROKEN in self.setup.faults,
        )
        if FaultKind.BROKEN in self.setup.faults:
            self.event_log.user_code_faults = UserCodeFaults(
                self._fork_rng(), self.setup.broken_code_chance, self.loop.jump, self.event_log.injected
            )
        self._observer_store = SqliteStore(path, runner=InlineRunner(path), clock=self.event_log.store_now)

    async def run(self) -> SimulationRecord:
        """Run the plan."""
        await self._observer_store.open()
        hosts = (*self._workers, *self._client_hosts)
        living = [asyncio.create_task(host.live(), name=f"host {host.name}") for host in hosts]
        await self._inject_faults(living)
        await self._last_crash()
        faults_ended_at = self.loop.time()
        open_at_end = len(await self._open_tasks())
        final_after = await self._wait_until_final(faults_ended_at, self.setup.final_bound(open_at_end))
        waiting = await self._results_received()
        snapshot = await read_snapshot(self._observer_store)
        record = make_record(
            self.event_log,
            self.setup,
            plan=self._plan,
            snapshot=snapshot,
            maps=await read_maps(self._observer_store, snapshot.rows.values()),
            deaths={m.name: m.died_at for host in hosts for m in host.machines if m.died_at is not None},
            scripted_ends=self._tasks.scripted_ends,
            integrity_errors=tuple(await self._observer_store.check_integrity()),
            faults_ended_at=faults_ended_at,
            final_after=final_after,
            open_at_end=open_at_end,
            waiting=waiting,
            steps=self.loop.steps,
            recorded_steps=await read_recorded_steps(self._observer_store, self.event_log.calls),
        )
        await self._end(living)
        return record

    async def _inject_faults(self, living: Sequence[asyncio.Task[None]]) -> None:
        """Run clients, workers and fault injectors for the planned time; then end every fault."""
        injector = self._injector()
        injecting = [asyncio.create_task(injector.run(), name=f"fault injector {n}") for n in range(2)]
        await asyncio.sleep(self.setup.phase_seconds)
        for job in injecting:
            job.cancel()
        for end in await asyncio.gather(*injecting, return_exceptions=True):
            if isinstance(end, Exception):
                raise end
        for job in living:
            if job.done():
                job.result()
        injector.end_all_faults()
        self._background_faults.errors = self._background_faults.lost_answers = 0.0
        if self.event_log.user_code_faults is not None:
            self.event_log.user_code_faults.chance = 0.0

    async def _last_crash(self) -> None:
        """Let one worker die when nothing hinders the others: its runs must be found in the stated time."""
        if FaultKind.CRASH not in self.setup.faults:
            return
        await asyncio.sleep(SECONDS_BEFORE_LAST_CRASH + 3 * self.setup.timings.reap)
        running = [
            row.worker_id
            for row in await self._observer_store.list_tasks(TaskFilter(states=(State.RUNNING,)))
        ]
        busy = [self.event_log.workers[worker_id] for worker_id in running if worker_id is not None]
        hosts = [host for host in self._workers if host.machine is not None and host.machine.name in busy]
        if hosts:
            hosts[0].crash(0)

    def close(self) -> None:
        """Close every connection."""
        for store in self._stores:
            _run_at_once(store.close())
        _run_at_once(self._observer_store.close())

    # --- the end ---

    async def _open_tasks(self) -> list[str]:
        rows = await self._observer_store.list_tasks(TaskFilter(states=_NOT_FINAL), limit=1_000)
        return [row.id for row in rows]

    async def _wait_until_final(self, faults_ended_at: float, bound: float) -> float | None:
        """Return the seconds until the clients were done and every task was final; None: beyond the bound."""
        while (took := self.loop.time() - faults_ended_at) < bound:
            await asyncio.sleep(_POLL_SECONDS)
            await self._send_events()
            await self._cancel_those_that_wait_for_failed_tasks()
            if self._clients_are_done() and not await self._open_tasks():
                return took
        return None

    async def _send_events(self) -> None:
        """Send what tasks wait for, as clients that are done send nothing any more."""
        for task_id in sorted(self.event_log.events.keys() - self._sent_events):
            self._sent_events.add(task_id)
            await send_event_to(self._observer_store, task_id)

    async def _cancel_those_that_wait_for_failed_tasks(self) -> None:
        """Cancel the tasks that stay held until a person redrives what they wait for."""
        for row in await self._observer_store.list_tasks(TaskFilter(states=(State.HELD,)), limit=1_000):
            edges = self.event_log.edges.get(row.id)
            if edges is not None and edges.on_failure == "wait":
                states = {parent.state for parent in await self._observer_store.list_parents(row.id)}
                if states & {State.DEAD, State.CANCELLED, None}:
                    self.event_log.cancelling.add(row.id)
                    await self._observer_store.cancel([row.id])

    def _clients_are_done(self) -> bool:
        present = [host.machine for host in self._client_hosts]
        return all(
            machine is not None and machine.name in self._clients and self._clients[machine.name].is_done
            for machine in present
        )

    async def _results_received(self) -> tuple[str, ...]:
        """Wait for the clients that wait for results; return the tasks whose results did not arrive."""
        for _ in range(20):
            waiting = [task_id for client in self._clients.values() for task_id in client.waiting]
            if not waiting:
                break
            await asyncio.sleep(_POLL_SECONDS)
        return tuple(waiting)

    async def _end(self, living: list[asyncio.Task[None]]) -> None:
        """End every coroutine: dead machines run again, without a store that they can reach."""
        self.event_log.is_open = False
        self._shared_condition.is_severed = True
        for job in living:
            job.cancel()
        await asyncio.gather(*living, return_exceptions=True)
        for host in (*self._workers, *self._client_hosts):
            for machine in host.machines:
                machine.revive()

    # --- what machines run ---

    async def _run_worker(self, machine: Machine) -> None:
        process = SimulatedWorker(self.setup, machine.name, self.event_log, self._fork_rng())
        self._processes[machine.name] = process
        machine.store = self._store(machine, process.on_answer).as_store()
        await process.run(machine.store)

    async def _run_client(self, machine: Machine) -> None:
        client = SimulatedClient(
            self._store(machine).as_store(),
            self.setup,
            self.event_log,
            self._fork_rng(),
            self._tasks,
            self.setup.phase_seconds * CLIENTS / max(1, self._plan.tasks),
        )
        self._clients[machine.name] = client
        await client.run(self.setup.phase_seconds)
        await asyncio.Event().wait()  # its waits for results go on

    def _on_gone(self, machine: Machine) -> None:
        self._processes.pop(machine.name, None)
        self._clients.pop(machine.name, None)

    # --- parts ---

    def _fork_rng(self) -> random.Random:
        """Return a source of its own: so that what one part draws does not shift the others."""
        return random.Random(self._rng.getrandbits(64))

    def _host(self, name: str, process: Callable[[Machine], Coroutine[Any, Any, None]]) -> SimulatedHost:
        return SimulatedHost(
            name=name,
            loop=self.loop,
            event_log=self.event_log,
            rng=self._fork_rng(),
            max_gap=self.setup.lease / self.setup.crash_weight,
            process=process,
            on_gone=self._on_gone,
        )

    def _store(self, machine: Machine, on_answer: Any = lambda method, answer: None) -> SimulatedStore:
        host = next(h for h in (*self._workers, *self._client_hosts) if h.machine is machine)
        store = SimulatedStore(
            self._path,
            clock=self._clock(),
            machine=machine.name,
            conditions=(host.store_condition, self._shared_condition),
            background_faults=self._background_faults,
            rng=self._fork_rng(),
            event_log=self.event_log,
            on_answer=on_answer,
        )
        self._stores.append(store)
        return store

    def _clock(self) -> Callable[[], float]:
        """Return the store clock of a process: the host's, which never goes back, or its own."""
        if FaultKind.SET_BACK in self.setup.faults:
            return HighWaterClock(wall=self._wall, steady=self.loop.time)
        return self.event_log.store_now

    def _injector(self) -> FaultInjector:
        return FaultInjector(
            setup=self.setup,
            workers=self._workers,
            clients=self._client_hosts,
            processes=self._processes,
            shared_condition=self._shared_condition,
            step_clock=self._step_clock,
            event_log=self.event_log,
            rng=self._fork_rng(),
        )

    def _wall(self) -> float:
        return EPOCH + self.loop.time() + self._clock_offset

    def _step_clock(self, seconds: float) -> None:
        self._clock_offset += seconds

    def _record_uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.event_log.record_uncaught(f"{context.get('message')}: {context.get('exception')!r}")


def _run_at_once(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that waits for nothing, without a loop."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError(f"{work!r} waits for something")


def _memory() -> str | None:
    """Return a directory in memory, where syncing costs nothing; None where the system has none."""
    shared = Path("/dev/shm")
    return str(shared) if os.access(shared, os.W_OK) else None


@contextlib.contextmanager
def _silence_log() -> Iterator[None]:
    """Silence the engine's log: a run logs thousands of times that the store cannot be reached."""
    log = logging.getLogger("tidegate")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)
