"""One round of one contestant: a fresh place for each figure, the same work for everybody.

- bulk, single: tasks stored a second by one client, in calls of 1,000 and one by one.
- drain: a worker is started on a full queue. The rate runs from the first body's beginning to the last one's,
  so start-up is left out; CPU of the worker's processes and of the server over the same time; peak memory of
  the worker's processes, and its ratio to what they held after a tenth of the tasks.
- two: the same with two worker processes, from when both have begun; of Tidegate, also the share of the slots
  its claims filled, and how many connections waited for a lock.
- pickup: an idle worker in another process; enqueue call → first line of the body.
- polled: the same by Tidegate without hints, so that only its polling finds the tasks.
- grown: drain again beside finished and scheduled tasks.
- held: what a claim of Tidegate takes while somebody holds a snapshot open, against before; four minutes a
  round, so only where it is asked for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import log_progress
from benchmarks.limit import percentiles
from benchmarks.peers import lock_waits
from benchmarks.peers.catalogue import FIGURES, Contestant
from benchmarks.peers.lock_waits import LockWaitSampler
from benchmarks.peers.servers import PeerStore, PostgreSQL
from benchmarks.peers.start_times import VARIABLE, StartTimes
from benchmarks.processes import CHILD_SECONDS, answer, environment, fresh_directory, running, wait_until
from benchmarks.usage import tree_cpu_seconds, tree_mib

PICKUPS, PAUSE_SECONDS = 500, 0.02
HELD_RATE, HELD_BEFORE_SECONDS, HELD_SECONDS = 300, 60.0, 180.0
START_SECONDS = 60.0
"""The longest that a worker may take to its first task."""
FINISHED, SCHEDULED = 1_000_000, 200_000
"""Old rows beside 20,000 ready tasks or more; fewer in proportion."""

Values = dict[str, float]


def _nothing() -> None:
    """Look at nothing meanwhile."""


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """CPU seconds used, at a moment when so many tasks were left."""

    worker: float
    server: float
    left: int

    @classmethod
    def of(cls, pids: list[int], server: int | None, left: int) -> CpuUsage:
        """Return that of these workers and of the server, if there is one."""
        used = sum(tree_cpu_seconds(pid) for pid in pids)
        return cls(used, tree_cpu_seconds(server) if server else 0.0, left)

    def since(self, before: CpuUsage) -> Values:
        """Return the CPU seconds of 1,000 tasks between the two moments."""
        thousands = (before.left - self.left) / 1000
        return {
            "worker_cpu": (self.worker - before.worker) / thousands,
            "server_cpu": (self.server - before.server) / thousands,
        }


@dataclass(frozen=True, slots=True)
class Rounds:
    """Runs the rounds of one contestant on one store."""

    contestant: Contestant
    store: PeerStore
    n: int
    """Tasks drained in a round, before the contestant's share."""

    figures: tuple[str, ...] = FIGURES

    @property
    def _tasks(self) -> int:
        return self.contestant.tasks(self.n)

    def round(self) -> Values:
        """Measure the figures once and return their values by name."""
        measure: dict[str, Callable[[], Values]] = {
            "bulk": self._bulk,
            "single": self._single,
            "drain": lambda: self._drain("fresh", workers=1),
            "two": self._two,
            "pickup": self._pickup,
            "polled": self._polled,
            "grown": self._with_old_rows,
            "held": self._held,
        }
        found: Values = {}
        for figure in self.figures:
            if figure not in self.contestant.figures:
                continue
            found |= {f"{figure}.{name}": value for name, value in measure[figure]().items()}
        return found

    def _bulk(self) -> Values:
        with self._place() as url:
            return self._call("bulk", url, n=self._tasks)

    def _single(self) -> Values:
        with self._place() as url:
            return self._call("single", url, n=max(100, self._tasks // 10))

    def _with_old_rows(self) -> Values:
        has_old_rows = isinstance(self.store, PostgreSQL) and self.contestant.growth
        return self._drain("grown", workers=1) if has_old_rows else {}

    def _two(self) -> Values:
        """Drain with two workers; of ours, look how they get along as well."""
        if self.contestant.kind != "ours" or not isinstance(self.store, PostgreSQL):
            return self._drain("fresh", workers=2)
        with fresh_directory() as directory, LockWaitSampler.at(self.store.url("postgres")) as looks:
            claims = directory / "claims"
            os.environ[lock_waits.VARIABLE] = str(claims)
            try:
                found = self._drain("fresh", workers=2, meanwhile=looks.look)
            finally:
                del os.environ[lock_waits.VARIABLE]
            return found | {"claims_full": lock_waits.fullness(claims), "lock_waits": looks.mean()}

    def _drain(self, kept: str, *, workers: int, meanwhile: Callable[[], None] = _nothing) -> Values:
        n = self._tasks
        with fresh_directory() as directory, self._place(kept) as url:
            self._call("fill", url, n=n)
            moments = StartTimes(directory, count=n, workers=workers)
            with ExitStack() as stack:
                pids = [stack.enter_context(self._worker(url, path, directory)) for path in moments.paths]
                self._wait_until(lambda: _under_way(moments, n), pids, every=0.005, within=START_SECONDS)
                before = CpuUsage.of(pids, self.store.pid, n - sum(moments.begun()))
                if before.left < n / 10:
                    log_progress(f"  too few tasks for {workers} of {self.contestant.name}")
                    return {}
                every = 0.005 + n * 5e-7  # looking costs us something, too
                self._wait_until(lambda: sum(moments.begun()) >= n / 10, pids, every=every)
                # Without the file of the start times: each worker maps it, and it fills up.
                own_memory = [sum(tree_mib(pid, "RssAnon") for pid in pids)]

                def all_begun() -> bool:
                    meanwhile()
                    own_memory.append(sum(tree_mib(pid, "RssAnon") for pid in pids))
                    return sum(moments.begun()) >= n

                self._wait_until(all_begun, pids, every=every)
                after = CpuUsage.of(pids, self.store.pid, 0)
                memory = sum(tree_mib(pid) for pid in pids)
            rate = moments.rate()
        growth = max(own_memory) / own_memory[0]
        return {"rate": rate, "memory": memory, "memory_growth": growth} | after.since(before)

    def _polled(self) -> Values:
        has_hints = self.contestant.kind == "ours" and self.contestant.store == "postgresql"
        return self._pickup("?hints=off") if has_hints else {}

    def _pickup(self, words: str = "") -> Values:
        n = min(PICKUPS, self.n)
        with fresh_directory() as directory, self._place() as place:
            url = place + words
            moments = StartTimes(directory, count=n + 1)
            path = moments.paths[0]
            with self._worker(url, path, directory) as pid:
                asked = self._call("pickup", url, moments=path, n=n, pause=PAUSE_SECONDS)["asked"]
                self._wait_until(lambda: sum(moments.begun()) > n, [pid], every=0.05)
            begun = moments.all()[1:]
        return percentiles([(at - since) * 1000 for at, since in zip(begun, asked, strict=True)])

    def _held(self) -> Values:
        if self.contestant.kind != "ours" or self.contestant.store != "postgresql":
            return {}
        options = {"rate": HELD_RATE, "before": HELD_BEFORE_SECONDS, "during": HELD_SECONDS}
        command = [sys.executable, "-m", "benchmarks.peers.open_snapshot", json.dumps(options)]
        with fresh_directory() as directory, self._place() as url:
            moments = StartTimes(directory, count=1)
            found: Values = answer(command, directory, self._environment(directory, url, moments.paths[0]))
        return found

    @contextmanager
    def _place(self, kept: str = "fresh") -> Iterator[str]:
        """Give the URL of a place with the queue's empty tables, or with the old rows too."""
        if isinstance(self.store, PostgreSQL):
            with self.store.fresh(self._made(self.store, kept)) as url:
                yield url
        else:
            with self.store.fresh() as url:
                self._call("create", url)
                yield url

    def _made(self, server: PostgreSQL, kept: str) -> str:
        """Return the name of the database to copy; make it when it is first asked for."""
        name = f"{self.contestant.name.replace('-', '_')}_{kept}"
        if name not in server.kept:
            self._call("create", server.keep(name))
            if kept == "grown":
                self._grow(server, name)
        return name

    def _grow(self, server: PostgreSQL, database: str) -> None:
        """Write old rows, as many for everybody."""
        assert self.contestant.growth
        log_progress(f"  writing the old rows of {self.contestant.name}")
        part = min(1.0, self.n / 20_000)
        counts = {":finished": round(FINISHED * part), ":scheduled": round(SCHEDULED * part)}
        sql = self.contestant.growth.read_text(encoding="utf-8")
        for name, count in counts.items():
            sql = sql.replace(name, str(count))
        server.execute(sql, database)
        server.execute("VACUUM ANALYZE", database)

    @contextmanager
    def _worker(self, url: str, moments: Path, directory: Path) -> Iterator[int]:
        """Run a worker process for a block; give its pid."""
        env = self._environment(directory, url, moments)
        with running(self.contestant.command("work"), directory, env) as worker:
            yield worker.pid

    def _call(self, what: str, url: str, *, moments: Path | None = None, **options: object) -> Any:
        """Let a client do this, and return what it answers."""
        with fresh_directory() as directory:
            env = self._environment(directory, url, moments)
            return answer(self.contestant.command(what, **options), directory, env)

    def _environment(self, directory: Path, url: str, moments: Path | None) -> dict[str, str]:
        return environment(directory) | {"BENCH_URL": url, VARIABLE: str(moments or "")}

    def _wait_until(
        self, condition: Callable[[], bool], pids: list[int], *, every: float, within: float = CHILD_SECONDS
    ) -> None:
        """Wait for a worker, unless it ends."""

        def so() -> bool:
            if not all(Path(f"/proc/{pid}/exe").exists() for pid in pids):
                raise RuntimeError(f"the worker of {self.contestant.name} ended")
            return condition()

        wait_until(so, what=f"{self.contestant.name} runs its tasks", every=every, within=within)


def _under_way(moments: StartTimes, n: int) -> bool:
    """Tell whether every worker has begun a task, or has come too late for one."""
    return all(moments.begun()) or sum(moments.begun()) >= n
