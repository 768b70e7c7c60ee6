"""The values of steps in the store: what runs begin and end, what is recorded, and the ledger of doubts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tidegate.domain.outcome import Fence
from tidegate.domain.step import DoubtState, OnDoubt, StepState

OTHER_TENANT = "another tenant"


class CacheTerms(NamedTuple):
    """How a step uses results of other tasks, and shares its own."""

    digest: str
    """What equal work has in common, see `tidegate.steps.cache`."""
    tenant: str
    is_shared: bool
    """Whether tasks of all tenants share the result."""
    seconds: float
    """A result that is older does not serve."""
    may_wait: bool = True
    """Whether the step waits while another task does the work. Otherwise the step does it, too."""
    has_waited: bool = False
    """Whether this run has waited for the work."""


class StepBegin(NamedTuple):
    """A run is about to do a step."""

    fence: Fence
    key: str
    """The step's identity within the task, see `tidegate.domain.step.step_key`."""
    attempt: int
    """How often this run has begun the step, this time included. The store recognises a resend by it."""
    name: str
    on_doubt: OnDoubt = OnDoubt.REPEAT
    upstream: str = ""
    """The upstream that the step calls; empty if that is unknown."""
    arguments: str = ""
    """A fingerprint of the arguments of the step's function; empty if none is kept."""
    cache: CacheTerms | None = None
    """None: the step uses no cache."""


class BeginStatus(StrEnum):
    """The store's answer to a `StepBegin`."""

    BEGUN = "begun"
    """The run may do the step now."""
    DONE = "done"
    """The step has a result; nothing is to be done."""
    IN_DOUBT = "in_doubt"
    """An earlier run may have done it, and its `on_doubt` is `ask` or `reconcile`. Nothing was begun."""
    REJECTED = "rejected"
    """A person decided that the step must not be done again."""
    WAIT = "wait"
    """Another task does the same work at this moment. Nothing was begun. Ask again when it has ended."""
    FENCED = "fenced"
    """The run is no longer the task's current one. Nothing was written."""


class BegunStep(NamedTuple):
    """What became of a `StepBegin`."""

    status: BeginStatus
    data: bytes = b""
    """The result of a step that is done."""
    codec: str = ""
    is_repeat: bool = False
    """Whether a step in doubt was begun again."""
    arguments: str = ""
    """The fingerprint of the arguments of a step that is done; empty if it was not kept."""
    leader_id: str = ""
    """The task that does the work (`WAIT`); empty if it is another tenant's."""
    is_cached: bool = False
    """Whether the result came from the cache just now."""


class EndStatus(StrEnum):
    """How a step ended, as its run reports it; and the store's answer."""

    DONE = "done"
    """It has a result."""
    FAILED = "failed"
    """The step failed, and no call that it made is in doubt."""
    IN_DOUBT = "in_doubt"
    """The step failed, and a call that it made may have been processed: the step stays open."""
    ALREADY = "already"
    """Answer only: the step has the result of another run. This result is the one that counts."""
    GONE = "gone"
    """Answer only: there is no such step, or no such task any more. Nothing was written."""


class StepEnd(NamedTuple):
    """A run has done a step.

    A result is recorded as long as the step is open, even if the run is no longer the task's current one: a
    paid answer is never discarded. A failure is recorded only for the run and attempt that began the step
    last.
    """

    fence: Fence
    key: str
    attempt: int
    status: EndStatus
    data: bytes = b""
    codec: str = ""
    cause: str = ""
    """Why the step failed, in one line."""
    upstream: str = ""
    request_id: str = ""
    """What the provider calls the request in doubt; empty if it did not say."""
    input_tokens: int | None = None
    """The tokens that the calls of the step have read, as far as their responses said it; None: not known."""
    output_tokens: int | None = None
    cache: CacheTerms | None = None
    """With a result: how other tasks share it. None: they do not."""


class EndedStep(NamedTuple):
    """What became of a `StepEnd`."""

    status: EndStatus
    data: bytes = b""
    """The result that counts, if it is another run's (`ALREADY`)."""
    codec: str = ""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A recorded step of a task."""

    key: str
    name: str
    state: StepState
    run: int
    """The run that began the step last, or whose result it has."""
    attempt: int
    """The attempt of that run; 0: a person gave the result."""
    begun_at: float
    """When the step was last begun."""
    ended_at: float | None
    size: int
    """The number of bytes of the step's result."""
    data: bytes | None
    """The encoded result of the step; None if it has none, or if it was not requested."""
    codec: str
    upstream: str
    arguments: str = ""
    """A fingerprint of what its function was called with; empty if it was not kept."""
    cached_from: str = ""
    """The task whose cached result it got, `OTHER_TENANT` for one of another tenant; empty: it was done."""


class DecidedLetter(NamedTuple):
    """A dead letter that waited for a person, and none of whose doubts is open any more."""

    task_id: str
    decided_by: str
    """Who decided last; empty if an answer came late."""


@dataclass(frozen=True, slots=True)
class DoubtRow:
    """An entry of the ledger of doubts: a call that was sent and has no definite answer."""

    id: int
    task_id: str
    function: str
    queue: str
    tenant: str
    step: str
    """The step's name."""
    key: str
    run: int
    attempt: int
    state: DoubtState
    on_doubt: OnDoubt
    cause: str
    upstream: str
    request_id: str
    sent_at: float
    """When the step was begun."""
    found_at: float
    resolved_at: float | None
    resolved_by: str
    note: str
    input_tokens: int | None = None
    """The input tokens that the call's response stated; None: not known."""
    output_tokens: int | None = None
