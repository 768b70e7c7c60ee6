"""What operators do with alerts: read them, mute them, try a sink, and make a pass by hand."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegate.alerts.delivery import Delivery
from tidegate.alerts.episodes import is_muted
from tidegate.alerts.evaluation import evaluate_if_due
from tidegate.alerts.messages import TEST, test_body
from tidegate.alerts.rules import RULES
from tidegate.alerts.settings import AlertSettings
from tidegate.alerts.sink_settings import Sink
from tidegate.alerts.sinks import send
from tidegate.alerts.sinks.command import CommandRunner
from tidegate.alerts.sinks.errors import DeliveryError
from tidegate.domain.ids import IdMaker
from tidegate.domain.readers import shown
from tidegate.errors import OptionError
from tidegate.operations.pauses import record
from tidegate.store.alert_rows import (
    ANY,
    AlertMute,
    ClaimedNotice,
    DisabledSink,
    Episode,
    EpisodeState,
    LastPass,
    Severity,
    UnsentNotices,
)
from tidegate.store.protocol import Store

STALE_PASSES = 8.0
"""After this many intervals without a pass, it is taken that no process evaluates alerts."""


@dataclass(frozen=True, slots=True)
class AlertOverview:
    """All alerts, read at one moment."""

    at: float
    """When the alerts were read, by the store's clock."""
    open: Sequence[Episode]
    pending: Sequence[Episode]
    """Alerts whose condition holds, but not for long enough yet."""
    ended: Sequence[Episode]
    mutes: Sequence[AlertMute]
    last_pass: LastPass
    unsent: Sequence[UnsentNotices]
    disabled: Sequence[DisabledSink]

    def is_muted(self, episode: Episode) -> bool:
        """Return whether a mute covers an episode."""
        return is_muted(self.mutes, episode.rule, episode.subject)

    def is_stale(self, interval: float) -> bool:
        """Return whether no process evaluates alerts any more."""
        finished = self.last_pass.finished_at
        return finished is None or self.at - finished > STALE_PASSES * interval

    def alarming(self, least: Severity = Severity.WARNING) -> list[Episode]:
        """Return the open alerts that are not muted and have at least this severity."""
        wanted = {Severity.CRITICAL, least}
        return [each for each in self.open if each.severity in wanted and not self.is_muted(each)]


async def read_alerts(store: Store, *, ended: int = 0) -> AlertOverview:
    """Return the alerts, including at most `ended` ended alerts."""
    current = await store.list_current_episodes()
    return AlertOverview(
        await store.now(),
        [each for each in current if each.state is EpisodeState.OPEN],
        [each for each in current if each.state is EpisodeState.PENDING],
        await store.list_ended_episodes(ended) if ended else [],
        await store.list_alert_mutes(),
        await store.get_last_alert_pass(),
        await store.count_unsent_notices(),
        await store.list_disabled_sinks(),
    )


async def check_alerts(store: Store, settings: AlertSettings) -> AlertOverview:
    """Make a pass and send due messages, unless another process has just done so; return the alerts."""
    rng = random.SystemRandom()
    make_id = IdMaker(lambda: time.time_ns() // 1_000_000, rng.getrandbits)
    evaluator = f"alerts check on {socket.gethostname()}, process {os.getpid()}"
    if await evaluate_if_due(store, settings, evaluator=evaluator, make_id=make_id) is not None:
        await Delivery(store, settings, clock=time.time, rng=rng).send_due()
    return await read_alerts(store)


async def mute(
    store: Store, rule: str, subject: str = ANY, *, seconds: float | None, by: str, why: str = ""
) -> None:
    """Send nothing about a rule and subject, for a time or until `unmute`; `*` means all of them.

    The end of an alert that was sent before is still sent. An alert that is open when the mute ends is sent
    then.

    Raises:
        OptionError: There is no such rule.
    """
    require_rule(rule)
    await store.mute_alerts(rule, subject, seconds, by=by, why=why)
    until = "until unmuted" if seconds is None else f"for {seconds:g} s"
    await record(store, by, "alert muted", f"{rule} {subject}", until, why)


async def unmute(store: Store, rule: str, subject: str = ANY, *, by: str) -> bool:
    """End a mute; return whether there was a mute."""
    was_muted = await store.unmute_alerts(rule, subject)
    await record(store, by, "alert unmuted", f"{rule} {subject}", "unmuted" if was_muted else "was not muted")
    return was_muted


@dataclass(frozen=True, slots=True)
class SinkTrial:
    """The outcome of a test message to a sink."""

    sink: str
    target: str
    """A description of the sink, without secrets."""
    error: str
    """Why the message was not delivered; empty if it was."""


async def try_sinks(store: Store, settings: AlertSettings, name: str | None = None) -> list[SinkTrial]:
    """Send a test message to one sink, or to all.

    A sink that answered 410 before is used again if it accepts the message.

    Raises:
        OptionError: There is no sink of that name.
    """
    return [await _try(store, settings, sink) for sink in _chosen(settings.sinks, name)]


async def _try(store: Store, settings: AlertSettings, sink: Sink) -> SinkTrial:
    now = time.time()
    message = ClaimedNotice(
        f"msg_test_{random.SystemRandom().getrandbits(96):024x}", sink.name, "", TEST, test_body(now), now, 1
    )
    try:
        await send(sink, message, now=now, allowed_hosts=settings.allowed_hosts, commands=CommandRunner())
    except DeliveryError as error:
        return SinkTrial(sink.name, sink.target, error.why)
    await store.enable_sink(sink.name)
    return SinkTrial(sink.name, sink.target, "")


def _chosen(sinks: Iterable[Sink], name: str | None) -> list[Sink]:
    found = [sink for sink in sinks if name in (None, sink.name)]
    if name is not None and not found:
        known = ", ".join(sink.name for sink in sinks)
        raise OptionError(
            f"sink={shown(name)}: there is no such sink",
            fix=f"known here: {known or 'none'}",
            option="sink",
            value=name,
        )
    return found


def require_rule(rule: str) -> None:
    """Raise unless there is such a rule; `*` stands for all.

    Raises:
        OptionError: There is no such rule.
    """
    if rule != ANY and rule not in RULES:
        raise OptionError(
            f"rule={shown(rule)}: there is no such rule",
            fix=f"use one of: {', '.join(RULES)}; or * for all",
            option="rule",
            value=rule,
        )
