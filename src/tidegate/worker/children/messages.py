"""What a pool process and a slot say to each other: length-prefixed MessagePack over a socket pair.

Values only, never code or pickles: the slot imports the application itself.

A deploy replaces the code under pool processes that go on, and the slots they start from then on are of the
next version. So each version reads the frames of the other: a new field comes last and has a default, which
means what was so before; one that is not known is passed over.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.domain.calls import CallSummary
from tidegate.domain.failure import Failure, LastFailure

HEADER_BYTES = 4
LARGEST_FRAME_BYTES = 64 * 2**20


class RunTask(msgspec.Struct, tag="run", frozen=True):
    """Run this body. To the slot."""

    function: str
    task_id: str
    run: int
    attempt: int
    max_attempts: int
    queue: str
    priority: int
    upstream: str
    tenant: str
    labels: dict[str, str]
    args: bytes
    scratch_root: str
    ends_at: float | None
    """By the monotonic clock, which is one for all processes of a machine; None: no limit."""
    is_probe: bool = False
    last_failure: LastFailure | None = None


class StopTask(msgspec.Struct, tag="stop", frozen=True):
    """Ask the present body to stop. To the slot."""

    why: str


class ChildReady(msgspec.Struct, tag="ready", frozen=True):
    """The application is imported and the start hooks have run. To the pool process."""


class FunctionStarted(msgspec.Struct, tag="started", frozen=True):
    """The body's turn has come; whatever kills this process from now on is put down to it."""


class ProgressReported(msgspec.Struct, tag="progress", frozen=True):
    """Progress."""

    done: float
    total: float | None
    note: str


class ChunkEmitted(msgspec.Struct, tag="chunk", frozen=True):
    """A chunk of the task's stream, encoded. To the pool process, which reads on only when there is room."""

    data: bytes


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer says."""

    unhealthy_reason: str = ""
    """Why this process must run nothing more; empty if it may."""
    calls: CallSummary | None = None
    """What the body called through transports; None: the slot is of a version that does not say."""


class FunctionReturned(RunReport, tag="returned", frozen=True, kw_only=True):
    """The body returned; the result is encoded."""

    data: bytes


class FunctionFailed(RunReport, tag="failed", frozen=True, kw_only=True):
    """The body raised."""

    failure: Failure
    rule: int
    """Place of the matching rule in `retry=[…]`; -1: none matched."""


class RetryWanted(RunReport, tag="retry", frozen=True, kw_only=True):
    """The body called `ctx.retry`."""

    after_seconds: float | None
    reason: str
    charge: bool


class FunctionStopped(RunReport, tag="stopped", frozen=True, kw_only=True):
    """The body ended because it was asked to stop."""


ToChild = RunTask | StopTask
ToParent = (
    ChildReady
    | FunctionStarted
    | ProgressReported
    | ChunkEmitted
    | FunctionReturned
    | FunctionFailed
    | RetryWanted
    | FunctionStopped
)
RunReply = FunctionReturned | FunctionFailed | RetryWanted | FunctionStopped

_encode = msgspec.msgpack.Encoder().encode
decode_to_child = msgspec.msgpack.Decoder(ToChild).decode
decode_to_parent = msgspec.msgpack.Decoder(ToParent).decode


def encode_message(frame: Any) -> bytes:
    """Return a frame as it goes over the wire."""
    body = _encode(frame)
    return len(body).to_bytes(HEADER_BYTES, "big") + body
