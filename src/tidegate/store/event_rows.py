"""The values of events in the store: what is sent, and what runs wait for."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tidegate.domain.outcome import Fence


class NewEvent(NamedTuple):
    """An event to send."""

    id: str
    """Made by the sender. An event that is sent again with the same id changes nothing."""
    name: str
    tenant: str
    data: bytes
    codec_tag: str
    kept_seconds: float
    """How long it stays for tasks that begin to wait for it later."""


class EventWait(NamedTuple):
    """A run waits for an event."""

    fence: Fence
    key: str
    """The identity of the wait within the task, see `tidegate.domain.step.step_key`."""
    name: str
    tenant: str
    timeout_seconds: float | None
    """Counts from the first time that a run of the task begins this wait; None: no timeout."""


class WaitStatus(StrEnum):
    """The store's answer to an `EventWait`."""

    RECEIVED = "received"
    OPEN = "open"
    """There is no such event yet."""
    TIMED_OUT = "timed_out"
    FENCED = "fenced"
    """The run is no longer the task's current one. Nothing was written."""


class WaitAnswer(NamedTuple):
    """What became of an `EventWait`."""

    status: WaitStatus
    data: bytes = b""
    """What was sent with the event."""
    codec_tag: str = ""
    left_seconds: float | None = None
    """The time until an open wait times out; None: it does not."""
