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
from chaos.faults import Journal
from chaos.ledgers import PROCESSES, read_processes
from chaos.processes import HOST, is_alive

LONGEST_GAP_SECONDS = 1.0
"""Without a process after one was killed."""
_LOOK_SECONDS = 0.05


@dataclass(slots=True)
class Life:
    """One process of a host."""

    pid: int
    began_at: float
    is_expected_to_end: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int | None = None


class Host:
    """One place and its command.

    Args:
        name: Of the host, in faults and ledgers.
        command: For the interpreter.
        directory: Where it runs, and its log is kept.
        env: All of its environment but the host's name.
        run_id: Names the run.
        journal: Told of a command that ends by itself.
        rng: For the time until the next start.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        directory: Path,
        env: Mapping[str, str],
        run_id: str,
        journal: Journal,
        rng: random.Random,
    ) -> None:
        self.name = name
        self.lives: list[Life] = []
        self.is_busy = False
        """Whether something is being done to it that must not be mixed with something else."""
        self.log_path = directory / f"{name}.log"
        self._command = command
        self._directory = directory
        self._mark = f"{run_id}/{name}"
        self._env = dict(env) | {HOST: self._mark}
        self._journal = journal
        self._rng = rng
        self._is_closing = False
        self._living: asyncio.Task[None] | None = None

    @property
    def life(self) -> Life | None:
        """The process that is there now."""
        if self.lives and not self.lives[-1].ended.is_set():
            return self.lives[-1]
        return None

    def start(self) -> None:
        """Begin to have one process after the other."""
        self._living = asyncio.create_task(self._live(), name=f"chaos host {self.name}")

    async def close(self, number: signal.Signals, within: float) -> int | None:
        """Have the present process end by that signal, and no other one; return its exit code.

        None: it did not end in time.
        """
        self.start_no_more()
        life = self.life
        if life is not None:
            self.expect_end()
            self.send([life.pid], number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await life.ended.wait()
        if self._living is not None:
            if life is None or life.ended.is_set():
                self._living.cancel()
            await asyncio.wait([self._living], timeout=1.0)
        return life.code if life is not None else 0

    def start_no_more(self) -> None:
        """Let the present process be the last one."""
        self._is_closing = True

    def send(self, pids: Iterable[int], number: signal.Signals) -> frozenset[int]:
        """Send a signal to those of these processes that belong to this host and live; return them."""
        return processes.send(pids, number, HOST, self._mark)

    def everything(self) -> list[int]:
        """Return all processes of this host, whatever started them."""
        return processes.carrying(HOST, self._mark)

    def expect_end(self) -> None:
        """Take the end of the present process as wanted."""
        if self.life is not None:
            self.life.is_expected_to_end = True

    # --- workers -----------------------------------------------------------------------------------------

    def pools(self) -> list[int]:
        """Return the living pool processes of the present worker command that have signed in."""
        life = self.life
        if life is None:
            return []
        signed_in = read_processes(self._directory / PROCESSES).pools.values()
        return [pool.pid for pool in signed_in if pool.parent == life.pid and is_alive(pool.pid)]

    def slots(self) -> list[int]:
        """Return the living slots of those pool processes that have signed in."""
        pools = set(self.pools())
        slots = read_processes(self._directory / PROCESSES).slots.values()
        return [slot.pid for some in slots for slot in some if slot.parent in pools and is_alive(slot.pid)]

    async def until_ready(self, within: float) -> bool:
        """Wait until it has a pool process that takes tasks; return whether it has."""
        ends_at = time.monotonic() + within
        while not self.pools():
            if time.monotonic() > ends_at:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    # --- one life after the other ------------------------------------------------------------------------

    async def _live(self) -> None:
        while not self._is_closing:
            with self.log_path.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *self._command,
                    cwd=self._directory,
                    env=self._env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            life = Life(process.pid, time.time())
            self.lives.append(life)
            life.code = await process.wait()
            life.ended.set()
            if not life.is_expected_to_end:
                self._journal.problems.append(
                    f"{self.name} (process {life.pid}) ended by itself with code {life.code}, see {self.log_path.name}"
                )
            if not self._is_closing:
                await asyncio.sleep(self._rng.uniform(0.0, LONGEST_GAP_SECONDS))


def clean_environment() -> dict[str, str]:
    """Return this process's environment without settings of Tidegate, our own packages importable."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    ours = str(Path(__file__).parents[1])
    parts = [os.path.abspath(part) for part in env.get("PYTHONPATH", "").split(os.pathsep) if part]
    return env | {"PYTHONPATH": os.pathsep.join(dict.fromkeys([ours, *parts]))}
