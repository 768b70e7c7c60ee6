"""What a failed run means: a verdict, a reason, and the evidence, as plain data that can always be stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Verdict(StrEnum):
    """Whether trying again can help."""

    TRANSIENT = "transient"
    """The same run may succeed later with nobody changing anything."""
    PERMANENT = "permanent"
    """It will not, until the request, the code, the credentials or the account change."""
    UNKNOWN = "unknown"
    """The evidence does not say."""


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
    """The task said so, by raising `Permanent`."""
    CANCELLED = "cancelled"
    CRASH = "crash"
    DEADLINE = "deadline"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LastFailure:
    """Why the latest run of a task that failed did so, as its next run sees it."""

    reason: Reason
    verdict: Verdict
    message: str
    """The error's own text, as it was stored, with secrets masked."""
    run: int
    """Which run failed."""
    failed_at: datetime
    """When it ended, in UTC by the store's clock."""


UPSTREAM_REASONS = frozenset({Reason.RATE_LIMIT, Reason.OVERLOADED})
"""Facts about the upstream, not about the task: they charge no attempt."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, understood. Holds no exception object, so it can cross processes and be stored."""

    verdict: Verdict
    reason: Reason
    message: str = ""
    """The error's own text, made storable and cut to `MESSAGE_LIMIT` characters."""
    error_class: str = ""
    """Dotted name of the exception class, or empty."""
    wait_seconds: float | None = None
    """The shortest wait the other side asked for; `None` when it asked for nothing usable."""
    is_refusal: bool = False
    """Our own gate let no call out: nobody was asked, so it tells nothing of the upstream."""
    is_unsent: bool = False
    """The request never left us: no connection could be made."""
    is_stated: bool = False
    """The task said so itself, by raising `Permanent`, `Transient` or `RetryAfter`."""
    upstream: str = ""
    """Whose call failed, where that is known."""
    status: int | None = None
    """HTTP status, where there was one."""
    code: str = ""
    """The provider's machine-readable code, where there was one."""
    request_id: str = ""
    """The provider's id of the failed call."""
    evidence: str = ""
    """What decided the verdict, in a few words: `status 503`, `rule on ValueError`."""
    traceback: str = ""
    """Text, without local variables, cut to `TRACEBACK_LIMIT` characters."""


MESSAGE_LIMIT = 4_000
"""Characters of an error message that are kept."""
TRACEBACK_LIMIT = 16_000
"""Characters of a traceback that are kept: the first and last parts."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """What one failed call shows of its upstream."""

    reason: Reason
    wait_seconds: float | None = None
    """The wait the server asked for; None: none."""
    needs_person: bool = False
    """Waiting cannot help: a key, an account, money."""
    message: str = ""
    jitter: float = 0.0
    """A number in [0, 1) drawn by the sender, for jitter."""
    is_for_all_keys: bool = False
    """Every key of the sender's ring is refused: what others' keys could do does not count."""
    task_id: str = ""
    """The task that met it; empty for a call outside tasks, each of which counts as another task."""
    upstream: str = ""
    """Whose call it was; empty: the run's own upstream."""
    is_reported: bool = False
    """The end of the call has moved the gate already: the end of the run must not."""
    began_seconds_ago: float | None = None
    """How long ago the call began; None: not known."""


CAPACITY_REASONS = frozenset({Reason.RATE_LIMIT, Reason.OVERLOADED})


FAULT_REASONS = frozenset({Reason.NETWORK, Reason.TIMEOUT, Reason.SERVER_ERROR})


ACCOUNT_REASONS = frozenset({Reason.QUOTA, Reason.AUTH})


GATE_REASONS = CAPACITY_REASONS | FAULT_REASONS | ACCOUNT_REASONS
"""Reasons that say something of the upstream; any other shows that it answers."""
