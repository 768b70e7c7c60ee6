"""The settings of an upstream's calls, with their time limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidegate.domain.readers import Seconds, limit_option, set_fields

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

    @property
    def provider_name(self) -> str:
        """The name of the provider pack to use."""
        return self.provider or self.upstream
