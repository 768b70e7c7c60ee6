"""The settings of an upstream's calls, with their time limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidegate.domain.readers import (
    Seconds,
    Size,
    choice_option,
    flag_option,
    limit_option,
    set_fields,
    size_option,
    wrong,
)
from tidegate.domain.step import OnDoubt
from tidegate.providers.counting import Counting
from tidegate.providers.packs import pack_for

RECORD_MAX_BYTES = 2**20
"""Unless an upstream sets another size, larger responses are not kept."""
MOST_RECORD_BYTES = 16 * 2**20
"""The largest size that an upstream can set: a response is written to the store at once."""
_SHORTEST_SECONDS = 0.001
"""The time limit of a call whose run has no time left: the call ends at once."""


@dataclass(frozen=True, slots=True, init=False)
class CallTimes:
    """The time limits of one call, in seconds from when it is sent. The wait for a permit does not count.

    Raises:
        OptionError: A limit is neither a duration above 0 nor `NO_LIMIT`.
    """

    seconds: float
    """Seconds until the end of the response, or until a stream begins. Default: 600, as in the SDKs of OpenAI
    and Anthropic (openai 3.57.0 and anthropic 2.14.0, `_constants.py`), because reasoning models take
    minutes."""
    connect_seconds: float
    """Seconds until the connection is made. Default: 5."""
    idle_seconds: float
    """Seconds between two pieces of a stream; a reasoning model sends nothing while it thinks. Default: 120,
    because Cloudflare, which many providers use, gives up on a silent server after 100 to 120 s (its error
    524)."""

    def __init__(
        self, seconds: Seconds = 600.0, connect_seconds: Seconds = 5.0, idle_seconds: Seconds = 120.0
    ) -> None:
        set_fields(
            self,
            seconds=limit_option("CallTimes: seconds", seconds),
            connect_seconds=limit_option("CallTimes: connect_seconds", connect_seconds),
            idle_seconds=limit_option("CallTimes: idle_seconds", idle_seconds),
        )

    def within(self, remaining_seconds: float) -> CallTimes:
        """Return these time limits, each capped at the remaining seconds of the run."""
        most = max(remaining_seconds, _SHORTEST_SECONDS)
        return replace(
            self,
            seconds=min(self.seconds, most),
            connect_seconds=min(self.connect_seconds, most),
            idle_seconds=min(self.idle_seconds, most),
        )


class AdmissionCounting(StrEnum):
    """How a provider counts tokens when a call begins."""

    MAX_TOKENS = "max_tokens"
    """The prompt and the request's `max_tokens`."""
    ACTUAL = "actual"
    """What calls like it really use."""


def admission_option(value: str | None) -> AdmissionCounting | None:
    """Return how a provider counts; None: as its pack says.

    Raises:
        OptionError: The value is neither `max_tokens` nor `actual`.
    """
    return None if value is None else AdmissionCounting(choice_option("admission", value, AdmissionCounting))


@dataclass(frozen=True, slots=True)
class Recording:
    """How the responses of an upstream's calls are kept, so that a re-run of a task does not repeat them."""

    max_bytes: int = RECORD_MAX_BYTES
    """A larger response is not kept."""
    on_doubt: OnDoubt = OnDoubt.REPEAT
    """What a re-run does with a call that may have been processed."""
    is_on: bool = True
    """Whether calls are recorded if their task function does not decide it."""
    is_final: bool = False
    """Whether `is_on` overrides the task function."""


NOT_RECORDED = Recording(is_on=False)


def recording_option(record: bool, max_bytes: Size, in_doubt: str) -> Recording:
    """Return how an upstream records calls.

    Raises:
        OptionError: An option is invalid.
    """
    size = size_option("record_max_bytes", max_bytes)
    if size > MOST_RECORD_BYTES:
        raise wrong("record_max_bytes", max_bytes, "use at most 16 MiB")
    on_doubt = OnDoubt(choice_option("in_doubt", in_doubt, (OnDoubt.REPEAT, OnDoubt.ASK)))
    return Recording(size, on_doubt, is_on=flag_option("record", record))


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings of one upstream's calls."""

    upstream: str
    provider: str = ""
    """The provider whose error formats apply if the host is unknown; empty: the provider named like the
    upstream."""
    times: CallTimes = field(default_factory=CallTimes)
    idempotency_header: str = "Idempotency-Key"
    """The name of the idempotency header that each POST gets unless it has one already; empty for no
    header."""
    recording: Recording = NOT_RECORDED
    """Whether and how calls are recorded."""
    admission: AdmissionCounting | None = None
    """How the provider counts tokens when a call begins; None: as its pack says."""

    @property
    def provider_name(self) -> str:
        """The name of the provider pack to use."""
        return self.provider or self.upstream

    def counting(self, host: str = "") -> Counting:
        """Return how the provider counts tokens.

        Args:
            host: The host of the request; empty if unknown.
        """
        known = pack_for(host=host, provider=self.provider_name).counting
        if self.admission is None:
            return known
        return replace(known, reserves_max_tokens=self.admission is AdmissionCounting.MAX_TOKENS)
