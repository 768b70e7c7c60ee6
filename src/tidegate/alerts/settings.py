"""The settings of alerts as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.alerts.rule_settings import RuleSettings
from tidegate.alerts.rules import RULES
from tidegate.alerts.sink_settings import LogSink, Sink
from tidegate.policy.daily import DailyTime

INTERVAL_SECONDS = 15.0
"""Seconds between two passes, over all processes together."""


def default_rules() -> dict[str, RuleSettings]:
    """Return the default settings of every rule."""
    return {name: rule.defaults for name, rule in RULES.items()}


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The settings of alerts. The defaults work without any configuration: alerts are written to the log."""

    is_enabled: bool = True
    interval: float = INTERVAL_SECONDS
    """Seconds between two passes, over all processes together."""
    rules: Mapping[str, RuleSettings] = field(default_factory=default_rules)
    sinks: tuple[Sink, ...] = (LogSink("log"),)
    allowed_hosts: tuple[str, ...] = ()
    """Hosts with private addresses that sinks may reach: names, addresses or networks."""
    daily_summary: DailyTime | None = field(default_factory=DailyTime)
    """When the dead tasks of a day are reported to the sinks; None for never."""
    ping_url: str | None = field(default=None, repr=False)
    """A URL that is called once a minute while passes are made: a dead-man switch."""
