"""Reads the settings of alerts from the tables of a configuration file and from environment variables.

Secrets never appear in an error: neither the secret of a webhook nor an address, whose path is often one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidegate.alerts.rule_settings import RULE_KEYS, RuleSettings, change_rule
from tidegate.alerts.rules import RULES
from tidegate.alerts.settings import AlertSettings
from tidegate.alerts.sink_settings import (
    FINAL_STATES,
    CommandSink,
    LogSink,
    Sink,
    SlackSink,
    TaskMessages,
    WebhookSink,
    read_url,
)
from tidegate.config.table import Table, checked, did_you_mean, private_text
from tidegate.errors import ConfigError
from tidegate.policy.daily import DailyTime, daily_time_option

VARIABLES = (
    "ALERTS_PING_URL",
    "ALERTS_WEBHOOK_URL",
    "ALERTS_WEBHOOK_SECRET",
    "ALERTS_WEBHOOK_SECRET_FILE",
    "ALERTS_SLACK_URL",
    "ALERTS_SLACK_URL_FILE",
)
"""The environment variables, without `TIDEGATE_`."""

_KEYS = (
    "enabled",
    "interval",
    "log",
    "ping_url",
    "allow_hosts",
    "daily_summary",
    "daily_summary_timezone",
    "rules",
    "sinks",
)
_ONLY = "only"
_COMMON_SINK_KEYS = ("kind", "timeout", "alerts", "tasks", "queues", "functions")
_SINK_KEYS = {
    "webhook": (
        *_COMMON_SINK_KEYS,
        "url",
        "url_file",
        "secret",
        "secret_file",
        "old_secret",
        "old_secret_file",
    ),
    "slack": (*_COMMON_SINK_KEYS, "url", "url_file"),
    "command": (*_COMMON_SINK_KEYS, "command"),
}
_SHORTEST_INTERVAL = 1.0
_LOG = LogSink("log")


def read_alerts(table: Table, base: AlertSettings) -> AlertSettings:
    """Return the settings of an `[alerts]` table over those of an earlier one.

    Raises:
        ConfigError: A key or a value is wrong.
    """
    table.require_known(_KEYS)
    changes: dict[str, Any] = {}
    if "enabled" in table:
        changes["is_enabled"] = table.flag("enabled")
    if "interval" in table:
        changes["interval"] = table.seconds("interval")
        if not _SHORTEST_INTERVAL <= changes["interval"] <= 3600.0:
            raise table.wrong("interval", "use 1 second to 1 hour")
    if "ping_url" in table:
        changes["ping_url"] = checked(table, lambda: read_url("ping_", private_text(table, "ping_url")))
    if "allow_hosts" in table:
        changes["allowed_hosts"] = table.texts("allow_hosts")
    if "daily_summary" in table or "daily_summary_timezone" in table:
        changes["daily_summary"] = checked(table, lambda: _read_daily(table))
    if "rules" in table:
        changes["rules"] = _read_rules(table.table("rules"), base.rules)
    sinks = {sink.name: sink for sink in base.sinks}
    if "log" in table:
        sinks.pop(_LOG.name, None)
        if table.flag("log"):
            sinks = {_LOG.name: _LOG, **sinks}
    for name, settings in table.table("sinks").tables().items():
        if name == _LOG.name:
            raise ConfigError(
                f"{settings.place}: the log is a sink already",
                fix="write log = false into [alerts] to remove it, or use another name",
                place=settings.place,
            )
        sinks[name] = _read_sink(name, settings)
    return replace(base, sinks=tuple(sinks.values()), **changes)


def _read_daily(table: Table) -> DailyTime | None:
    time = table.text("daily_summary") if "daily_summary" in table else "08:00"
    zone = table.text("daily_summary_timezone") if "daily_summary_timezone" in table else "UTC"
    return None if time == "off" else daily_time_option("daily_summary", time, zone)


def read_alert_variables(variables: Mapping[str, str], base: AlertSettings) -> AlertSettings:
    """Return the settings with those of environment variables, which override the file's.

    Args:
        variables: The variables, without `TIDEGATE_`.
        base: The settings so far.

    Raises:
        ConfigError: A value is wrong.
    """
    ping_url = variables.get("ALERTS_PING_URL")
    values = {} if ping_url is None else {"ping_url": ping_url}
    sinks = {
        kind: {
            key.lower(): value
            for key in keys
            if (value := variables.get(f"ALERTS_{kind.upper()}_{key}")) is not None
        }
        for kind, keys in (("webhook", ("URL", "SECRET", "SECRET_FILE")), ("slack", ("URL", "URL_FILE")))
    }
    found = {sink.name: sink for sink in base.sinks}
    for kind, settings in sinks.items():
        if settings:
            place = f"TIDEGATE_ALERTS_{kind.upper()}_…"
            found[kind] = _read_sink(kind, Table({"kind": kind, **settings}, file=place, section=""))
    table = Table(values, file="TIDEGATE_ALERTS_PING_URL", section="")
    return read_alerts(table, replace(base, sinks=tuple(found.values())))


def _read_rules(table: Table, base: Mapping[str, RuleSettings]) -> dict[str, RuleSettings]:
    rules = dict(base)
    for name, settings in table.tables().items():
        if name not in RULES:
            raise ConfigError(
                f"{settings.place}: there is no such rule",
                fix=did_you_mean(name, RULES),
                place=settings.place,
                option=name,
            )
        rules[name] = _read_rule(name, settings, rules[name])
    return rules


def _read_rule(name: str, table: Table, base: RuleSettings) -> RuleSettings:
    table.require_known((*RULE_KEYS, _ONLY))
    rule = _change_rule(name, table, base)
    subjects = dict(base.subjects)
    for subject, settings in table.table(_ONLY).tables().items():
        settings.require_known(RULE_KEYS)
        whole = replace(subjects.get(subject, rule), subjects={})
        subjects[subject] = _change_rule(name, settings, whole)
    return replace(rule, subjects=subjects)


def _change_rule(name: str, table: Table, base: RuleSettings) -> RuleSettings:
    values = {key: value for key, value in table.values.items() if key != _ONLY}
    return checked(table, lambda: change_rule(name, base, values, unit=RULES[name].unit))


def _read_sink(name: str, table: Table) -> Sink:
    kind = table.text("kind") if "kind" in table else ""
    if kind not in _SINK_KEYS:
        raise ConfigError(
            f"{table.place}: kind is missing or wrong",
            fix=f"write one of: {', '.join(_SINK_KEYS)}",
            place=table.place,
            option="kind",
        )
    table.require_known(_SINK_KEYS[kind])
    options: dict[str, Any] = {"tasks": _task_messages(table)}
    if "timeout" in table:
        options["timeout"] = table.seconds("timeout")
    if "alerts" in table:
        options["sends_alerts"] = table.flag("alerts")
    if kind == "command":
        command = table.texts("command") if "command" in table else ()
        return checked(table, lambda: CommandSink(name, command, **options))
    url = private_text(table, "url")
    if kind == "slack":
        return checked(table, lambda: SlackSink(name, url, **options))
    secrets = [text for key in ("secret", "old_secret") if (text := private_text(table, key))]
    return checked(table, lambda: WebhookSink(name, url, secrets, **options))


def _task_messages(table: Table) -> TaskMessages:
    states = table.texts("tasks") if "tasks" in table else ()
    for state in states:
        if state not in FINAL_STATES:
            raise table.wrong("tasks", f"use a list of {', '.join(FINAL_STATES)}")
    queues, functions = (table.texts(key) if key in table else () for key in ("queues", "functions"))
    return TaskMessages(states, queues, functions)
