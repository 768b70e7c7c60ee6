"""The values of worker rows."""

from __future__ import annotations

from dataclasses import dataclass

EMBEDDED_WORKER_NAME = "embedded"
"""The name of every embedded worker: one that runs inside another process."""


@dataclass(frozen=True, slots=True)
class NewWorker:
    """One pool process that is about to start."""

    id: str
    """A new UUID for each process start; it is never used again."""
    name: str
    pool: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    """How many tasks it runs at once when it starts."""
    lease_seconds: float
    version: str = ""
    application: str = ""
    """The reference under which its manifest is stored; empty if it stores none."""
    schedule_set: str = ""
    """The fingerprint of the set of schedules that the process's application declares; empty if unknown."""
    most_slots: int | None = None
    """How many slots it may grow to; None: its slots do not grow."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One pool process as stored."""

    id: str
    name: str
    pool: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    started_at: float
    heartbeat_at: float
    expires_at: float
    retired_at: float | None
    running: int
    version: str = ""
    application: str = ""
    """The reference under which its manifest is stored; empty if unknown."""
    code: str = ""
    """The version of the process's code: a hash of its functions; empty if not reported yet."""
    most_slots: int = 0
    """How many slots it may grow to; as many as `slots` if they do not grow."""
