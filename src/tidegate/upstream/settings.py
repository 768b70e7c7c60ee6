"""How the calls of an upstream are made, and how long one may take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Time limits of one call, in seconds from when it is sent. The wait for its permit is not part of it."""

    seconds: float = 60.0
    """To the end of the answer; of a stream, to its beginning."""
    connect_seconds: float = 5.0
    """To a connection."""
    idle_seconds: float = 30.0
    """Between two pieces of a stream."""

    def within(self, remaining_seconds: float) -> CallTimes:
        """Return the same, none longer than the run that makes the call has left."""
        return replace(
            self,
            seconds=min(self.seconds, remaining_seconds),
            connect_seconds=min(self.connect_seconds, remaining_seconds),
            idle_seconds=min(self.idle_seconds, remaining_seconds),
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
    def meant_by(self) -> str:
        """The provider whose pack is asked."""
        return self.provider or self.upstream
