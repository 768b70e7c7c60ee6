"""Steps: pieces of a task whose results are kept, so that a re-run does not do (or pay for) them again."""

from __future__ import annotations

import hashlib
from enum import StrEnum

KEY_LENGTH = 200
"""The most characters of a step's name, and of its explicit key."""
CACHED_BYTES = 262_144
"""A larger result of a step is not shared with other tasks."""


class StepState(StrEnum):
    """What the store knows of a step."""

    OPEN = "open"
    """A run has begun it, and no answer is recorded. If that run is over, the step is in doubt."""
    DONE = "done"
    """Its result is recorded."""
    FAILED = "failed"
    """The step definitely failed, or a person allowed a repeat. The next run may begin it again."""
    REJECTED = "rejected"
    """A person decided that it must not be repeated. The task cannot go on."""


class OnDoubt(StrEnum):
    """What a re-run does with a step in doubt: begun by an earlier run, and without a recorded answer."""

    REPEAT = "repeat"
    """Run it again, with the same idempotency key. The doubt is listed."""
    ASK = "ask"
    """Make the task a dead letter, until a person has decided."""
    RECONCILE = "reconcile"
    """Ask a function of the application what became of it."""


class DoubtState(StrEnum):
    """What became of a call in doubt."""

    OPEN = "open"
    """Nobody knows yet whether it was done."""
    REPEATED = "repeated"
    """It was done again. If the first call had been processed, it was paid twice."""
    RECONCILED = "reconciled"
    """The application found out what became of it."""
    ANSWERED = "answered"
    """The answer of the call came late, and is the result of the step."""
    PAID_TWICE = "paid_twice"
    """The answer of the call came after that of another run, whose result counts."""
    ACCEPTED = "accepted"
    """A person gave the result."""
    REJECTED = "rejected"
    """A person decided that it must not be repeated."""


class DoubtAnswer(StrEnum):
    """What a person decides about a call in doubt."""

    REPEAT = "repeat"
    ACCEPT = "accept"
    REJECT = "reject"


def step_digest(name: str, fingerprint: bytes) -> str:
    """Return what equal steps of a run have in common.

    Args:
        name: The step's name.
        fingerprint: What the step was called with: its encoded arguments, or its explicit key.
    """
    return hashlib.sha256(name.encode() + b"\0" + fingerprint).hexdigest()[:32]


def step_key(digest: str, position: int) -> str:
    """Return the identity of a step within its task.

    Args:
        digest: That of its name and fingerprint.
        position: The number of the step among the equal ones of its run, from 1. Equal steps may change
            places: their order under `asyncio.gather` does not matter.
    """
    return f"{digest}:{position}"


def idempotency_key(task_id: str, key: str) -> str:
    """Return what identifies a step for a provider: ASCII, the same in each run, at most 90 characters."""
    digest, _, position = key.partition(":")
    return f"{task_id}:step:{position}:{digest[:16]}"
