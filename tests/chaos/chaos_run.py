"""One run from the first process to the last: start, inject faults, wait until every task is final, stop."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos import processes
from chaos.client import ChaosClient, client_log_path
from chaos.fault_injector import ProcessFaultInjector
from chaos.faults import ChaosFaultLog
from chaos.functions import app
from chaos.global_faults import GlobalFaultInjector
from chaos.hosts import ChaosHost
from chaos.paid_calls import Providers, providers
from chaos.plan import START_SECONDS, ChaosPlan
from chaos.process_logs import NOTES, PROCESSES, read_clients, read_processes
from chaos.processes import RUN
from chaos.run_record import ChaosRecord, make_record
from chaos.setup import ChaosSetup
from chaos.stall_detector import StallDetector
from chaos.store_backends import StoreBackend
from chaos.write_monitor import monitor_writes
from checker import RunLimits, read_notes, read_snapshot
from harness.paid_calls import PAID, PaidCalls, PaidNote
from harness.relations import RECEIVED, ParentEdges, WaitNote, read_maps
from harness.steps import CALLS, read_calls, read_notes_of, read_recorded_steps
from tidegate.domain.states import FINAL, State
from tidegate.internals import core_of
from tidegate.store.rows import TaskFilter

OWN_CLIENT = "client-0"
"""The name under which the run itself enqueues."""
_CLIENT_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.1


@dataclass(eq=False)
class ChaosRun:
    """One run. Its environment variables must be set: this process imports the functions as well."""

    plan: ChaosPlan
    directory: Path
    """An existing directory for the store, the notes, the scratch files and the logs."""
    run_id: str
    """Marks every process of the run."""
    env: dict[str, str]
    """The environment of every process of the run."""
    store_backend: StoreBackend
    log: Callable[[str], None]
    """Logs a line for people."""

    def __post_init__(self) -> None:
        self._rng = random.Random(self.plan.seed)
        self._fault_log = ChaosFaultLog()
        command = ("-m", "tidegate.cli", "worker", "chaos.functions:app")
        self._workers = [self._host(f"worker-{n}", *command) for n in range(1, self.plan.workers + 1)]
        self._clients: list[ChaosHost] = []
        path = client_log_path(self.directory, OWN_CLIENT)
        self._own = ChaosClient(app, path, rng=self._rng, lease=self.plan.lease)

    async def run(self) -> ChaosRecord:
        """Run it to its end; no process of it is left when this returns or raises."""
        async with providers(self.directory) as paid:
            return await self._run(paid)

    async def _run(self, paid: Providers) -> ChaosRecord:
        began_at = time.time()
        try:
            with StallDetector() as stall_detector:
                await self._start()
                monitoring = asyncio.create_task(
                    monitor_writes(core_of(app).store, self._fault_log), name="chaos prober"
                )
                await self._run_faults()
                final_after, open_at_end, faults_ended_at = await self._wait_until_final()
                longest_drain = await self._stop()
                monitoring.cancel()
                self._fault_log.faults += stall_detector.stalls
            ended_at = time.time()
            clients = read_clients(self.directory.glob("client-*.ndjson"))
            self._record_leftovers()
            self._fault_log.problems += [("client", error) for error in clients.client_errors]
            self.log("checking")
            steps = await read_recorded_steps(core_of(app).store, read_calls(self.directory / CALLS))
            snapshot = await read_snapshot(core_of(app).store)
            return make_record(
                self.plan,
                clients,
                read_processes(self.directory / PROCESSES),
                snapshot,
                tuple(read_notes(self.directory / NOTES)),
                maps=await read_maps(core_of(app).store, snapshot.rows.values()),
                wait_notes=read_notes_of(self.directory / RECEIVED, WaitNote),
                limits={
                    name: RunLimits.of(function.spec) for name, function in core_of(app).functions.items()
                },
                fault_log=self._fault_log,
                began_at=began_at,
                faults_ended_at=faults_ended_at,
                final_after=final_after,
                open_at_end=open_at_end,
                ended_at=ended_at,
                integrity_errors=tuple(await core_of(app).store.check_integrity()),
                longest_drain=longest_drain,
                recorded_steps=steps,
                paid_calls=PaidCalls(
                    read_notes_of(self.directory / PAID, PaidNote), paid.calls(), steps.doubts
                ),
            )
        finally:
            await self._end()

    # --- the parts of a run ----------------------------------------------------------------------------

    async def _start(self) -> None:
        await (await core_of(app).opened_store()).migrate()
        for worker in self._workers:
            worker.start()
        share = self.plan.tasks_per_second / self.plan.clients
        for number in range(1, self.plan.clients + 1):
            name = f"client-{number}"
            client = self._host(name, "-m", "chaos.client", name, f"{self.plan.seed}/{name}", str(share))
            self._clients.append(client)
            client.start()
        ready = await asyncio.gather(*(worker.wait_until_ready(START_SECONDS) for worker in self._workers))
        if not all(ready):
            self._fault_log.record_problem(
                f"{ready.count(False)} workers did not start within {START_SECONDS:.0f} s"
            )
        self.log(f"{len(self._workers)} workers and {len(self._clients)} clients are there")

    async def _run_faults(self) -> None:
        setup = ChaosSetup(
            plan=self.plan,
            rng=self._rng,
            workers=self._workers,
            clients=self._clients,
            fault_log=self._fault_log,
            run=(RUN, self.run_id),
            log=self.log,
        )
        global_injector = GlobalFaultInjector(
            setup,
            store=core_of(app).store,
            filler_client=self._own,
            env=self.env,
            store_backend=self.store_backend,
        )
        await ProcessFaultInjector(setup, global_injector).run_faults()

    async def _wait_until_final(self) -> tuple[float | None, int, float]:
        """Stop the clients and wait until every task is final.

        Returns:
            The seconds that took (None: too long), the tasks that were open, and when the faults ended.
        """
        faults_ended_at = time.time()
        self.log(f"no more faults after {self._fault_log.worker_kills} kills")
        for client in self._clients:
            if (code := await client.end(signal.SIGTERM, _CLIENT_STOP_SECONDS)) not in {0, -signal.SIGTERM}:
                self._fault_log.record_problem(f"{client.name} ended with code {code} after SIGTERM")
        relations = read_clients(self.directory.glob("client-*.ndjson")).relations
        for task_id in relations.events:
            await self._own.send_event(task_id)
        open_at_end = await self._open_tasks()
        bound = self.plan.final_bound(open_at_end)
        while await self._open_tasks():
            await self._cancel_those_that_wait_for_failed_tasks(relations.edges)
            if time.time() - faults_ended_at > bound:
                return None, open_at_end, faults_ended_at
            await asyncio.sleep(_POLL_SECONDS)
        return time.time() - faults_ended_at, open_at_end, faults_ended_at

    async def _cancel_those_that_wait_for_failed_tasks(self, edges: Mapping[str, ParentEdges]) -> None:
        """Cancel the tasks that stay held until a person redrives what they wait for."""
        store = core_of(app).store
        for row in await store.list_tasks(TaskFilter(states=(State.HELD,)), limit=1_000):
            if row.id in edges and edges[row.id].on_failure == "wait":
                states = {parent.state for parent in await store.list_parents(row.id)}
                if states & {State.DEAD, State.CANCELLED}:
                    await self._own.cancel(row.id)

    async def _open_tasks(self) -> int:
        open_states = tuple(state for state in State if state not in FINAL)
        return len(await core_of(app).store.list_tasks(TaskFilter(states=open_states), limit=1_000))

    async def _stop(self) -> float:
        """Drain every worker; return how long the last one took."""
        began_at = time.monotonic()
        within = self.plan.drain_bound + 5.0
        codes = await asyncio.gather(*(worker.end(signal.SIGTERM, within) for worker in self._workers))
        for worker, code in zip(self._workers, codes, strict=True):
            if not worker.ended_well(code):
                self._fault_log.record_problem(f"{worker.name} ended with code {code} at the last SIGTERM")
        return time.monotonic() - began_at

    def _record_leftovers(self) -> None:
        """Record the processes and scratch files that the stopped workers left behind."""
        left = processes.carrying(RUN, self.run_id)
        scratch = sorted((self.directory / "scratch").rglob("*"))
        self._fault_log.problems += [
            *(("left", f"a process was left behind: {processes.describe(pid)}") for pid in left),
            *(("left", f"scratch was left behind: {path}") for path in scratch),
        ]

    async def _end(self) -> None:
        hosts = (*self._workers, *self._clients)
        for host in hosts:
            host.expect_end()
            host.stop_restarting()
        await processes.end_all(RUN, self.run_id)
        for host in hosts:
            await host.end(signal.SIGKILL, 5.0)
        if left := await processes.end_all(RUN, self.run_id):
            self.log(f"processes that cannot be killed: {left}")
        await app.aclose()

    def _host(self, name: str, *command: str) -> ChaosHost:
        return ChaosHost(
            name=name,
            command=[*command, "--name", name] if name.startswith("worker") else command,
            directory=self.directory,
            env=self.env,
            run_id=self.run_id,
            fault_log=self._fault_log,
            rng=self._rng,
        )
