"""One run from the first process to the last: start, let things go wrong, wait until all is final, stop."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from chaos import processes
from chaos.bodies import app
from chaos.client import Client, ledger_path
from chaos.everyone import Everyone
from chaos.faults import Journal
from chaos.hosts import Host
from chaos.houses import House
from chaos.ledgers import NOTES, PROCESSES, read_clients, read_processes
from chaos.nemesis import Nemesis
from chaos.plan import START_SECONDS, Plan
from chaos.prober import probe
from chaos.processes import RUN
from chaos.scene import Scene
from chaos.seen import Seen
from chaos.ticker import Ticker
from tidegate.domain.states import FINAL, State
from tidegate.store.rows import TaskFilter
from tidegate.testing.checker import Limits, read_notes, read_record

OWN_CLIENT = "client-0"
"""The name under which the run itself enqueues."""
_CLIENT_STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.1


class World:
    """One run. Its environment variables must be set: the bodies are imported by us as well.

    Args:
        plan: How much of what.
        directory: For store, ledgers, scratch and logs; exists.
        run_id: Marks every process of the run.
        env: Of every process of the run.
        house: Where the store is.
        tell: Says what happens, for people.
    """

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        run_id: str,
        env: dict[str, str],
        house: House,
        tell: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._run_id = run_id
        self._env = env
        self._house = house
        self._tell = tell
        self._rng = random.Random(plan.seed)
        self._journal = Journal()
        numbers = range(1, plan.workers + 1)
        self._workers = [
            self._host(f"worker-{n}", "-m", "tidegate.cli", "worker", "chaos.bodies:app") for n in numbers
        ]
        self._clients: list[Host] = []
        self._own = Client(app, ledger_path(directory, OWN_CLIENT), rng=self._rng, lease=plan.lease)

    async def run(self) -> Seen:
        """Run it to its end; no process of it is left when this returns or raises."""
        began_at = time.time()
        try:
            with Ticker() as ticker:
                await self._start()
                probing = asyncio.create_task(probe(app.store, self._journal), name="chaos prober")
                await self._play()
                settled_after, open_then, calm_at = await self._settle()
                longest_drain = await self._stop()
                probing.cancel()
                self._journal.faults += ticker.stalls
            ended_at = time.time()
            left = processes.carrying(RUN, self._run_id)
            self._tell("judging")
            return Seen(
                plan=self._plan,
                clients=read_clients(self._directory.glob("client-*.ndjson")),
                notes=tuple(read_notes(self._directory / NOTES)),
                record=await read_record(app.store),
                limits={name: Limits.of(function.spec) for name, function in app.functions.items()},
                journal=self._journal,
                processes=read_processes(self._directory / PROCESSES),
                began_at=began_at,
                calm_at=calm_at,
                settled_after=settled_after,
                open_then=open_then,
                ended_at=ended_at,
                left_processes=tuple(processes.describe(pid) for pid in left),
                left_scratch=tuple(sorted(str(path) for path in (self._directory / "scratch").rglob("*"))),
                faults_in_store=tuple(await app.store.check()),
                longest_drain=longest_drain,
            )
        finally:
            await self._end()

    # --- the acts ----------------------------------------------------------------------------------------

    async def _start(self) -> None:
        await (await app.opened_store()).migrate()
        for worker in self._workers:
            worker.start()
        share = self._plan.tasks_per_second / self._plan.clients
        for number in range(1, self._plan.clients + 1):
            name = f"client-{number}"
            client = self._host(name, "-m", "chaos.client", name, f"{self._plan.seed}/{name}", str(share))
            self._clients.append(client)
            client.start()
        ready = await asyncio.gather(*(worker.until_ready(START_SECONDS) for worker in self._workers))
        if not all(ready):
            self._journal.problems.append(
                f"{ready.count(False)} workers did not start within {START_SECONDS:.0f} s"
            )
        self._tell(f"{len(self._workers)} workers and {len(self._clients)} clients are there")

    async def _play(self) -> None:
        scene = Scene(
            plan=self._plan,
            rng=self._rng,
            workers=self._workers,
            clients=self._clients,
            journal=self._journal,
            run=(RUN, self._run_id),
            tell=self._tell,
        )
        everyone = Everyone(scene, store=app.store, flood=self._own, env=self._env, house=self._house)
        await Nemesis(scene, everyone).play()

    async def _settle(self) -> tuple[float | None, int, float]:
        """Stop the clients and wait until every task is final.

        Returns:
            The seconds that took (None: too long), the tasks that were open, and when the faults ended.
        """
        calm_at = time.time()
        self._tell(f"no more faults after {self._journal.worker_kills} kills")
        for client in self._clients:
            if (code := await client.close(signal.SIGTERM, _CLIENT_STOP_SECONDS)) not in {0, -signal.SIGTERM}:
                self._journal.problems.append(f"{client.name} ended with code {code} after SIGTERM")
        open_then = await self._open_tasks()
        bound = self._plan.settle_bound(open_then)
        while await self._open_tasks():
            if time.time() - calm_at > bound:
                return None, open_then, calm_at
            await asyncio.sleep(_LOOK_SECONDS)
        return time.time() - calm_at, open_then, calm_at

    async def _open_tasks(self) -> int:
        open_states = tuple(state for state in State if state not in FINAL)
        return len(await app.store.list_tasks(TaskFilter(states=open_states), limit=1_000))

    async def _stop(self) -> float:
        """Drain every worker; return how long the last one took."""
        began_at = time.monotonic()
        within = self._plan.drain_bound + 5.0
        codes = await asyncio.gather(*(worker.close(signal.SIGTERM, within) for worker in self._workers))
        for worker, code in zip(self._workers, codes, strict=True):
            if code != 0:
                self._journal.problems.append(f"{worker.name} ended with code {code} at the last SIGTERM")
        return time.monotonic() - began_at

    async def _end(self) -> None:
        hosts = (*self._workers, *self._clients)
        for host in hosts:
            host.expect_end()
            host.start_no_more()
        await processes.end_all(RUN, self._run_id)
        for host in hosts:
            await host.close(signal.SIGKILL, 5.0)
        if left := await processes.end_all(RUN, self._run_id):
            self._tell(f"processes that cannot be killed: {left}")
        await app.aclose()

    def _host(self, name: str, *command: str) -> Host:
        return Host(
            name,
            [*command, "--name", name] if name.startswith("worker") else command,
            directory=self._directory,
            env=self._env,
            run_id=self._run_id,
            journal=self._journal,
            rng=self._rng,
        )
