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
    """One period in which a rule's condition held for one subject."""

    id: str
    rule: str
    subject: str
    """The queue, upstream, schedule… that the rule is about."""
    state: str
    """`open` or `ended`."""
    severity: str
    """`warning` or `critical`."""
    since: datetime
    """When the condition began to hold."""
    opened_at: datetime | None
    ended_at: datetime | None
    value: float
    """The latest value; it may be infinite. Durations are in seconds, shares from 0 to 1."""
    limit: float
    is_muted: bool
    text: str
    """A description of the alert, with the number and its limit."""
    command: str
    """The command that shows more about the alert."""


class AlertAdmin:
    """Open and ended alerts, and mutes. The rules are settings of `tidegate.toml`."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(self, *, ended: int = 0) -> builtins.list[AlertStatus]:
        """Return the open alerts, oldest first, and then up to `ended` ended alerts, the latest first."""
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
        """Send nothing about a rule and subject. The end of an alert that was sent before is still sent.

        An alert that is open when the mute ends is sent then.

        Args:
            rule: The name of the rule; `*` for every rule.
            subject: A queue, an upstream…; `*` for every subject.
            span: How long the mute lasts; None: until `unmute`.
            why: The reason, shown wherever the mute is shown.
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
        """End the mute with this rule and subject; return whether there was such a mute."""
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
