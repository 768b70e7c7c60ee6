"""Failures as plain data that can always be stored: a verdict, a reason and the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Verdict(StrEnum):
    """Whether a retry can help."""

    TRANSIENT = "transient"
    """A retry may succeed although nothing is changed."""
    PERMANENT = "permanent"
    """A retry fails until the request, the code, the credentials or the account change."""
    UNKNOWN = "unknown"
    """The evidence does not show which."""


class Reason(StrEnum):
    """Why a run failed."""

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    QUOTA = "quota"
    TIMEOUT = "timeout"
    NETWORK = "network"
    SERVER_ERROR = "server_error"
    INVALID_REQUEST = "invalid_request"
    AUTH = "auth"
    NOT_FOUND = "not_found"
    CONTENT_POLICY = "content_policy"
    CONTEXT_LENGTH = "context_length"
    TOO_LARGE = "too_large"
    INVALID_OUTPUT = "invalid_output"
    REJECTED = "rejected"
    """The task raised `Permanent`."""
    IN_DOUBT = "in_doubt"
    """A step may have been done, and a person must decide."""
    CANCELLED = "cancelled"
    CRASH = "crash"
    DEADLINE = "deadline"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LastFailure:
    """Why the latest failed run of a task failed. The next run of the task can read this."""

    reason: Reason
    verdict: Verdict
    message: str
    """The error's own text, as it was stored, with secrets masked."""
    run: int
    """Which run failed."""
    failed_at: datetime
    """When the run ended, in UTC by the store's clock."""


CAPACITY_REASONS = frozenset({Reason.RATE_LIMIT, Reason.OVERLOADED})
"""The upstream has no capacity now. The task is not at fault, so these charge no attempt."""
FAULT_REASONS = frozenset({Reason.NETWORK, Reason.TIMEOUT, Reason.SERVER_ERROR})
"""The upstream or the way to it is broken."""
ACCOUNT_REASONS = frozenset({Reason.QUOTA, Reason.AUTH})
"""The account or the key is at fault."""
GATE_REASONS = CAPACITY_REASONS | FAULT_REASONS | ACCOUNT_REASONS
"""The reasons that are about the upstream. Any other reason shows that the upstream answers."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure and its meaning.

    The value contains no exception, so other processes and stores can take it.
    """

    verdict: Verdict
    reason: Reason
    message: str = ""
    """The error's own text, made storable and cut to `MESSAGE_LIMIT` characters."""
    error_class: str = ""
    """The dotted name of the exception class, or empty."""
    wait_seconds: float | None = None
    """The shortest wait that the server asked for; None if it named no usable wait."""
    is_refusal: bool = False
    """Our own gate refused the call. Nothing was sent, so it shows nothing about the upstream."""
    is_unsent: bool = False
    """The request was not sent: no connection could be made."""
    is_stated: bool = False
    """The task itself stated it, by raising `Permanent`, `Transient` or `RetryAfter`."""
    upstream: str = ""
    """The upstream whose call failed; empty if unknown."""
    status: int | None = None
    """The HTTP status; None if there was none."""
    code: str = ""
    """The provider's machine-readable code; empty if there was none."""
    request_id: str = ""
    """The provider's id of the failed call."""
    evidence: str = ""
    """What decided the verdict, in a few words: `status 503`, `rule on ValueError`."""
    traceback: str = ""
    """The traceback as text, without local variables, cut to `TRACEBACK_LIMIT` characters."""


MESSAGE_LIMIT = 4_000
"""An error message is cut to this many characters."""
TRACEBACK_LIMIT = 16_000
"""A traceback is cut to this many characters: its first and last parts are kept."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """What one failed call shows of its upstream. Gates are moved by it."""

    reason: Reason
    wait_seconds: float | None = None
    """The wait that the server named; None if it named none."""
    needs_person: bool = False
    """Waiting does not help: a person must fix the key or the account."""
    message: str = ""
    jitter: float = 0.0
    """A random number in [0, 1) from the sender, used for jitter."""
    is_for_all_keys: bool = False
    """Every key of the sender's ring is refused, so the gates of the keys are not looked at."""
    task_id: str = ""
    """The task that met the failure; empty for a call outside tasks. Each such call counts as a different
    task."""
    upstream: str = ""
    """The upstream that was called; empty for the run's own upstream."""
    is_reported: bool = False
    """The end of the call has already reported the failure to the gate, so the end of the run must not report
    it again."""
    silent_seconds: float | None = None
    """For a report of silence: how long the sender's calls in flight got no answer. Otherwise None."""
    began_seconds_ago: float | None = None
    """How long ago the call began; None if unknown."""
