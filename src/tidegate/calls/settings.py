"""How the calls of an upstream are made, and how long one may take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidegate.readers import Seconds, limit_option, set_fields

_SHORTEST_SECONDS = 0.001
"""What a call of a run without any time left gets: it ends at once."""


@dataclass(frozen=True, slots=True, init=False)
class CallTimes:
    """Time limits of one call, in seconds from when it is sent. The wait for its permit is not part of it.

    Raises:
        OptionError: One is no duration above 0, and not `NO_LIMIT`.
    """

    seconds: float
    """To the end of the answer; of a stream, to its beginning. 600 as in the SDKs of OpenAI and Anthropic
    (openai 3.57.0 and anthropic 2.14.0, `_constants.py`): reasoning models take minutes."""
    connect_seconds: float
    """To a connection."""
    idle_seconds: float
    """Between two pieces of a stream. A reasoning model is silent while it thinks. 120, since Cloudflare,
    which stands before many providers, gives up on a silent server after 100 to 120 s (its error 524)."""

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
        """Return the same, none longer than the run that makes the call has left."""
        most = max(remaining_seconds, _SHORTEST_SECONDS)
        return replace(
            self,
            seconds=min(self.seconds, most),
            connect_seconds=min(self.connect_seconds, most),
            idle_seconds=min(self.idle_seconds, most),
        )


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How the calls of one upstream are made."""

    upstream: str
    provider: str = ""
    """Whose meanings to go by where the host is not known; empty: the upstream's name."""
    times: CallTimes = field(default_factory=CallTimes)
    idempotency_header: str = "Idempotency-Key"
    """Sent with every POST that has none of its own; empty: never."""

    @property
    def provider_name(self) -> str:
        """The provider whose pack is asked."""
        return self.provider or self.upstream
