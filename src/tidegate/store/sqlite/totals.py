"""What a batch of endings adds to the minute's roll-up, gathered so that each channel is written once."""

from __future__ import annotations

from dataclasses import dataclass, field

import apsw

from tidegate.store.sqlite.statements import load

_COUNT = load("finish")["count"]

Where = tuple[str, str, str, str]
"""(queue, function, upstream, tenant)."""


@dataclass(slots=True)
class Ended:
    """Ends of one channel's runs."""

    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    released: int = 0
    run_seconds: float = 0.0
    wait_seconds: float = 0.0


@dataclass(slots=True)
class Totals:
    """Sums by channel."""

    by_channel: dict[Where, Ended] = field(default_factory=dict)

    def of(self, where: Where) -> Ended:
        """Return the sums of one channel, to add to."""
        return self.by_channel.setdefault(where, Ended())

    def write(self, db: apsw.Connection, now: float) -> None:
        """Add everything to the minute of `now`."""
        minute = int(now // 60)
        for where, sums in self.by_channel.items():
            final_at = now if sums.dead or sums.cancelled else None
            db.execute(
                _COUNT,
                (
                    minute,
                    *where,
                    sums.dead,
                    sums.cancelled,
                    sums.retried,
                    sums.released,
                    sums.run_seconds,
                    sums.wait_seconds,
                    final_at,
                ),
            )
