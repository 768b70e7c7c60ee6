"""The part of the store contract for alerts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from tidegate.store.alert_rows import (
    AlertMute,
    AlertPass,
    BusyTask,
    ClaimedNotice,
    Connections,
    DisabledSink,
    Episode,
    LastPass,
    NewlyFinalTask,
    NewNotice,
    PassResult,
    UnsentNotices,
    WorkerEnd,
)


class Alerts(Protocol):
    """Alerts: who evaluates them, their episodes, and the notices that sinks must get.

    Any number of processes may evaluate. One of these processes makes each pass. A process that dies holds no
    lock, and another process makes the next pass.
    """

    async def begin_alert_pass(self, evaluator: str, *, interval_seconds: float) -> AlertPass | None:
        """Return the next pass if it is due; None if another process began one less than an interval ago."""

    async def end_alert_pass(self, number: int, result: PassResult) -> bool:
        """Store what a pass found, and delete old episodes, notices and mutes; all or nothing.

        Return False, and change nothing, if a later pass has begun. A notice that exists is kept.
        """

    async def get_last_alert_pass(self) -> LastPass:
        """Return who made the latest pass, and up to when the last one that ended has read."""

    async def list_current_episodes(self) -> list[Episode]:
        """Return the pending and open episodes, oldest first."""

    async def list_ended_episodes(self, limit: int = 50) -> list[Episode]:
        """Return the latest ended episodes, newest first. Episodes are kept for 30 days."""

    async def mute_alerts(self, rule: str, subject: str, seconds: float | None, *, by: str, why: str) -> None:
        """Mute a rule for a subject for `seconds`; None: the mute lasts until a person ends it.

        A second mute replaces the first.
        """

    async def unmute_alerts(self, rule: str, subject: str) -> bool:
        """End a mute; return whether there was one. Safe to repeat."""

    async def list_alert_mutes(self) -> list[AlertMute]:
        """Return the mutes in force, ordered by rule and subject."""

    async def add_notices(self, notices: Sequence[NewNotice]) -> None:
        """Store notices to be sent. Safe to repeat: a notice that exists is kept."""

    async def claim_notices(
        self, sinks: Collection[str], *, lease_seconds: float, limit: int = 50
    ) -> list[ClaimedNotice]:
        """Return due notices for these sinks. Until the lease runs out no other process gets them.

        If several notices about one thing wait for one sink, only the oldest of them is returned.
        """

    async def finish_notice(self, notice_id: str) -> None:
        """Record that a notice was delivered. Safe to repeat."""

    async def retry_notice(self, notice_id: str, why: str, *, seconds: float | None) -> None:
        """Record a failed attempt; the next is due in `seconds`, None: give up.

        A delivered notice stays as it is.
        """

    async def count_unsent_notices(self) -> list[UnsentNotices]:
        """Return how many notices wait to be delivered, for each sink."""

    async def disable_sink(self, name: str, target: str, why: str) -> None:
        """Record that a sink must not be used any more. `target` is a hash of the sink's address."""

    async def enable_sink(self, name: str) -> bool:
        """Use a sink again; return whether it was disabled."""

    async def list_disabled_sinks(self) -> list[DisabledSink]:
        """Return the disabled sinks, ordered by name."""

    async def list_worker_ends(self) -> list[WorkerEnd]:
        """Return all worker processes that are alive or ended in the last day, in any order."""

    async def list_busy_tasks(self, *, runs: int, calls: int, limit: int = 20) -> list[BusyTask]:
        """Return unfinished tasks that ran more than `runs` times or made more than `calls` calls.

        Tasks with at most 20 runs and 100 calls are never returned, because the index does not have them.
        """

    async def list_newly_final_tasks(
        self,
        since: float,
        until: float,
        *,
        is_dead: bool,
        after: NewlyFinalTask | None = None,
        limit: int = 1_000,
    ) -> list[NewlyFinalTask]:
        """Return tasks that became final after `since` and not after `until`, oldest first.

        Args:
            since: Moment.
            until: Moment.
            is_dead: True: those that are dead; False: those that succeeded or were cancelled.
            after: The last one of the page before; None for the first page.
            limit: How many at most.
        """

    async def get_connections(self) -> Connections | None:
        """Return how many connections the database server has and may have; None for a file."""
