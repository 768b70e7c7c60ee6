"""The health of one worker, from its pool processes."""

from __future__ import annotations

import os

from tidegate._version import __version__
from tidegate.worker.supervisor.health import Health
from tidegate.worker.supervisor.pool_processes import PoolProcesses


def describe_worker(
    name: str, pools: PoolProcesses, database_url: str, *, is_restarting: bool, is_stopping: bool
) -> Health:
    """Return the current health of a worker."""
    ready, wanted, processes = pools.ready(), len(pools), pools.processes()
    busy, slots = sum(each.busy for each in processes), sum(each.slots for each in processes)
    problems = loops = pools.crash_loops()
    if not wanted or ready < wanted:
        problems = [*problems, f"{ready} of {wanted} pool processes are ready"]
    problems = [*problems, *(f"pool {each.pool.name}: {each.problem}" for each in processes if each.problem)]
    if is_restarting:
        problems = [*problems, "it is restarting"]
    if is_stopping:
        problems = [*problems, "it is stopping"]
    quiet = sum(each.wanted.is_quiet for each in processes)
    summary = f"{ready} of {wanted} processes ready, {busy} of {slots} slots busy"
    if quiet:
        summary += f", {quiet} quiet"
    return Health(
        kind="worker",
        name=name,
        pid=os.getpid(),
        database_url=database_url,
        version=__version__,
        status="; ".join(["stopping"] * is_stopping + [summary, *loops]),
        problems=problems,
        crash_loops=loops,
    )
