"""Places where one command runs: a worker or a client, started again whenever it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos import processes
from chaos.process_logs import PROCESSES, read_processes
from chaos.processes import HOST, is_alive
from harness.faults import FaultLog
from tidegate.worker.supervisor.supervisor import EXIT_KILLED

LONGEST_GAP_SECONDS = 1.0
"""Without a process after one was killed."""
_POLL_SECONDS = 0.05
CHILDREN_KILLED = b"child processes were killed because their tasks did not stop"
"""What a worker logs at its end if it had to kill child processes. Its exit code is then 1."""
_LAST_BYTES = 16_384


@dataclass(slots=True)
class HostProcess:
    """One process of a host."""

    pid: int
    began_at: float
    is_expected_to_end: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int | None = None


@dataclass(eq=False, kw_only=True)
class ChaosHost:
    """One host, which restarts its command whenever it ends."""

    name: str
    """The host's name in faults and files."""
    command: Sequence[str]
    """Arguments of the Python interpreter."""
    directory: Path
    """Working directory and place of the log."""
    env: Mapping[str, str]
    """The environment, without the host's name."""
    run_id: str
    """Marks the processes of the run."""
    fault_log: FaultLog
    """Records a command that ends by itself."""
    rng: random.Random
    """Source of the time until the next start."""
    is_in_use: bool = False
    """Whether a fault is being injected here that no other may overlap."""
    processes_started: list[HostProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log_path = self.directory / f"{self.name}.log"
        self._marker = f"{self.run_id}/{self.name}"
        self._env = dict(self.env) | {HOST: self._marker}
        self._is_closing = False
        self._restart_job: asyncio.Task[None] | None = None

    @property
    def current_process(self) -> HostProcess | None:
        """The process that is there now. A killed one is not, even before its end was noticed."""
        last = self.processes_started[-1] if self.processes_started else None
        return None if last is None or last.ended.is_set() or not is_alive(last.pid) else last

    def start(self) -> None:
        """Start the first process, and a new one whenever it ends."""
        self._restart_job = asyncio.create_task(self._restart_loop(), name=f"chaos host {self.name}")

    async def end(self, number: signal.Signals, within: float) -> int | None:
        """Have the present process end by that signal, and no other one; return its exit code.

        None: it did not end in time.
        """
        self.stop_restarting()
        current_process = self.current_process
        if current_process is not None:
            self.expect_end()
            self.send([current_process.pid], number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await current_process.ended.wait()
        if self._restart_job is not None:
            if current_process is None or current_process.ended.is_set():
                self._restart_job.cancel()
            await asyncio.wait([self._restart_job], timeout=1.0)
        return current_process.code if current_process is not None else 0

    def stop_restarting(self) -> None:
        """Let the present process be the last one."""
        self._is_closing = True

    def send(self, pids: Iterable[int], number: signal.Signals) -> frozenset[int]:
        """Send a signal to those of these processes that belong to this host and live; return them."""
        return processes.send(pids, number, HOST, self._marker)

    def all_pids(self) -> list[int]:
        """Return all processes of this host."""
        return processes.carrying(HOST, self._marker)

    def expect_end(self) -> None:
        """Take the end of the present process as wanted."""
        if self.current_process is not None:
            self.current_process.is_expected_to_end = True

    def ended_well(self, code: int | None) -> bool:
        """Return whether a worker may end with this code after SIGTERM.

        1 is right only if its log names killed child processes: some functions ignore a stop.
        """
        if code != EXIT_KILLED:
            return code in {0, -signal.SIGTERM}
        with self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - _LAST_BYTES))
            return CHILDREN_KILLED in log.read()

    # --- workers ---------------------------------------------------------------------------------------

    def pools(self) -> list[int]:
        """Return the living pool processes of the present worker command that have registered."""
        current_process = self.current_process
        if current_process is None:
            return []
        registered = read_processes(self.directory / PROCESSES).pools.values()
        return [pool.pid for pool in registered if pool.parent == current_process.pid and is_alive(pool.pid)]

    def children(self) -> list[int]:
        """Return the living slots of those pool processes that have registered."""
        pools = set(self.pools())
        children = read_processes(self.directory / PROCESSES).children.values()
        return [
            child.pid for some in children for child in some if child.parent in pools and is_alive(child.pid)
        ]

    async def wait_until_ready(self, within: float) -> bool:
        """Wait until it has a pool process that takes tasks; return whether it has."""
        ends_at = time.monotonic() + within
        while not self.pools():
            if time.monotonic() > ends_at:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    # --- one life after the other ----------------------------------------------------------------------

    async def _restart_loop(self) -> None:
        while not self._is_closing:
            with self.log_path.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *self.command,
                    cwd=self.directory,
                    env=self._env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            current_process = HostProcess(process.pid, time.time())
            self.processes_started.append(current_process)
            current_process.code = await process.wait()
            current_process.ended.set()
            if not current_process.is_expected_to_end:
                self.fault_log.record_problem(
                    f"{self.name} (process {current_process.pid}) ended by itself with code {current_process.code}, see {self.log_path.name}"
                )
            if not self._is_closing:
                await asyncio.sleep(self.rng.uniform(0.0, LONGEST_GAP_SECONDS))


def clean_environment() -> dict[str, str]:
    """Return this process's environment without settings of Tidegate, our own packages importable."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    ours = str(Path(__file__).parents[1])
    parts = [os.path.abspath(part) for part in env.get("PYTHONPATH", "").split(os.pathsep) if part]
    return env | {"PYTHONPATH": os.pathsep.join(dict.fromkeys([ours, *parts]))}
