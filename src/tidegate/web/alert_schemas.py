"""Types of the bodies about alerts, and functions that fill them from the store's rows."""

from __future__ import annotations

import math

import msgspec

from tidegate.alerts.messages import command_of, describe
from tidegate.operations.alerts import AlertOverview, SinkTrial
from tidegate.store.alert_rows import ANY, AlertMute, Episode


class AlertOut(msgspec.Struct):
    """One period in which a rule's condition held for one subject."""

    id: str
    rule: str
    subject: str
    """The queue, upstream, schedule… that the rule is about."""
    state: str
    """`open` or `ended`; `pending` if the condition has not held for long enough yet."""
    severity: str
    """`warning` or `critical`."""
    since: float
    """When the condition began to hold."""
    opened_at: float | None
    ended_at: float | None
    value: float | None
    """The latest value; null if it is infinite. Durations are in seconds, shares from 0 to 1."""
    limit: float
    muted: bool
    text: str
    """A description of the alert, with the number and its limit."""
    command: str
    """The command that shows more about the alert."""


class MuteOut(msgspec.Struct):
    """A mute: a person wants no messages about a rule and subject."""

    rule: str
    """The rule; `*` for every rule."""
    subject: str
    """The subject; `*` for every subject."""
    until: float | None
    """When the mute ends; null: a person must end it."""
    muted_at: float
    muted_by: str
    why: str


class AlertsOut(msgspec.Struct):
    """The open alerts, oldest first, and then ended alerts, the latest first."""

    alerts: list[AlertOut]
    mutes: list[MuteOut]
    evaluated_at: float | None
    """When the rules were last evaluated; null if they never were."""


class MuteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to mute or unmute."""

    rule: str
    """The rule; `*` for every rule."""
    subject: str = ANY
    """The subject; `*` for every subject."""
    seconds: float | None = None
    """After how many seconds the mute ends; null: a person must end it."""
    why: str = ""
    """The reason, shown wherever the mute is shown."""


class MuteResult(msgspec.Struct):
    """The result of a mute or its end."""

    rule: str
    subject: str
    answer: str
    """`muted`, `unmuted` or `was not muted`."""


class TrySinksRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which sink to send a test message to."""

    sink: str | None = None
    """The name of the sink; null: every sink."""


class SinkTrialOut(msgspec.Struct):
    """The outcome of a test message."""

    sink: str
    target: str
    """A description of the sink, without secrets."""
    error: str | None
    """Why the message was not delivered; null if it was."""


class SinkTrialsOut(msgspec.Struct):
    """The outcomes of the test messages, by sink."""

    sinks: list[SinkTrialOut]


def to_alerts_out(alerts: AlertOverview) -> AlertsOut:
    """Return the alerts as the API shows them."""
    shown = (*alerts.open, *alerts.ended)
    return AlertsOut(
        [_to_alert_out(alerts, each) for each in shown],
        [_to_mute_out(each) for each in alerts.mutes],
        alerts.last_pass.finished_at,
    )


def to_trials_out(trials: list[SinkTrial]) -> SinkTrialsOut:
    """Return the outcomes of test messages as the API shows them."""
    return SinkTrialsOut([SinkTrialOut(each.sink, each.target, each.error or None) for each in trials])


def _to_alert_out(alerts: AlertOverview, episode: Episode) -> AlertOut:
    return AlertOut(
        id=episode.id,
        rule=episode.rule,
        subject=episode.subject,
        state=episode.state.value,
        severity=episode.severity.value,
        since=episode.first_at,
        opened_at=episode.opened_at,
        ended_at=episode.ended_at,
        value=episode.value if math.isfinite(episode.value) else None,
        limit=episode.threshold,
        muted=alerts.is_muted(episode),
        text=describe(episode),
        command=command_of(episode),
    )


def _to_mute_out(mute: AlertMute) -> MuteOut:
    return MuteOut(mute.rule, mute.subject, mute.until_at, mute.muted_at, mute.by, mute.why)
