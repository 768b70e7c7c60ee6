"""`app.admin.alerts`."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime

from tidegate.admin.source import AdminSource
from tidegate.alerts.messages import command_of, describe
from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.domain.readers import Seconds, positive_option
from tidegate.operations.alerts import AlertOverview, mute, read_alerts, unmute
from tidegate.operations.pauses import current_user
from tidegate.store.alert_rows import ANY, Episode
from tidegate.threads.bridge import run_sync

_THROUGH = "app.admin"


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """One time that a rule's condition held for one subject."""

    id: str
    rule: str
    subject: str
    """The queue, upstream, schedule… that the rule is about."""
    state: str
    """`open` or `ended`."""
    severity: str
    """`warning` or `critical`."""
    since: datetime
    """Since when the condition has held."""
    opened_at: datetime | None
    ended_at: datetime | None
    value: float
    """The latest value; infinity is possible. Durations are in seconds, shares from 0 to 1."""
    limit: float
    is_muted: bool
    text: str
    """What is wrong, with the number and its limit."""
    command: str
    """The command that shows more."""


class AlertAdmin:
    """Open and ended alerts, and mutes. The rules are settings of `tidegate.toml`."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(self, *, ended: int = 0) -> builtins.list[AlertStatus]:
        """Return the open alerts, oldest first, and then at most `ended` ended ones, the latest first."""
        alerts = await read_alerts(await self._source.opened_store(), ended=ended)
        return [_status(alerts, each) for each in (*alerts.open, *alerts.ended)]

    def list_sync(self, *, ended: int = 0) -> builtins.list[AlertStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list(ended=ended))

    async def mute(
        self,
        rule: str,
        subject: str = ANY,
        *,
        span: Seconds | None = None,
        why: str = "",
        by: str | None = None,
    ) -> None:
        """Send nothing about a rule and subject.

        An alert that has been sent still gets its end. One that is open when the mute ends is sent then.

        Args:
            rule: Its name; `*` for every rule.
            subject: A queue, an upstream…; `*` for all.
            span: How long; None: until `unmute`.
            why: Shown wherever the mute is shown.
            by: Who mutes it; None: the user of this process.

        Raises:
            OptionError: There is no such rule, or the time cannot work.
        """
        seconds = None if span is None else positive_option("span", span)
        store = await self._source.opened_store()
        await mute(store, rule, subject, seconds=seconds, by=by or current_user(_THROUGH), why=why)

    def mute_sync(
        self,
        rule: str,
        subject: str = ANY,
        *,
        span: Seconds | None = None,
        why: str = "",
        by: str | None = None,
    ) -> None:
        """Same as `mute`, from sync code."""
        run_sync(self.mute(rule, subject, span=span, why=why, by=by))

    async def unmute(self, rule: str, subject: str = ANY, *, by: str | None = None) -> bool:
        """End a mute that was made with this rule and subject; return whether there was one."""
        store = await self._source.opened_store()
        return await unmute(store, rule, subject, by=by or current_user(_THROUGH))

    def unmute_sync(self, rule: str, subject: str = ANY, *, by: str | None = None) -> bool:
        """Same as `unmute`, from sync code."""
        return run_sync(self.unmute(rule, subject, by=by))


def _status(alerts: AlertOverview, episode: Episode) -> AlertStatus:
    return AlertStatus(
        id=episode.id,
        rule=episode.rule,
        subject=episode.subject,
        state=episode.state.value,
        severity=episode.severity.value,
        since=to_datetime(episode.first_at),
        opened_at=to_datetime_or_none(episode.opened_at),
        ended_at=to_datetime_or_none(episode.ended_at),
        value=episode.value,
        limit=episode.threshold,
        is_muted=alerts.is_muted(episode),
        text=describe(episode),
        command=command_of(episode),
    )
