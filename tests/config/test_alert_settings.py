"""The settings of alerts in `tidegate.toml` and in the environment."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tidegate.alerts.settings import AlertSettings
from tidegate.alerts.sink_settings import CommandSink, LogSink, SlackSink, WebhookSink
from tidegate.config import load_config
from tidegate.errors import ConfigError
from tidegate.store.alert_rows import Severity

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
SINK = f'[alerts.sinks.ops]\nkind = "webhook"\nurl = "https://h.example/T0/hidden"\nsecret = "{SECRET}"\n'


def load(folder: Path, text: str = "", **variables: str) -> AlertSettings:
    (folder / "tidegate.toml").write_text(text)
    return load_config(folder, {f"TIDEGATE_{name}": value for name, value in variables.items()}).alerts


def test_without_settings_alerts_go_to_the_log(tmp_path: Path) -> None:
    assert load(tmp_path).sinks == (LogSink("log"),)
    assert load(tmp_path, "[alerts]\nlog = false").sinks == ()


def test_a_rule_can_be_changed_as_a_whole_and_for_one_subject(tmp_path: Path) -> None:
    text = """
    [alerts.rules.drain]
    limit = "10m"
    for = "1m"
    [alerts.rules.drain.only.nightly]
    limit = "6h"
    severity = "critical"
    [alerts.rules.depth]
    enabled = false
    """
    rules = load(tmp_path, text).rules
    assert (rules["drain"].of("main").limit, rules["drain"].of("main").hold_seconds) == (600.0, 60.0)
    nightly = rules["drain"].of("nightly")
    assert (nightly.limit, nightly.hold_seconds, nightly.severity) == (21_600.0, 60.0, Severity.CRITICAL)
    assert not rules["depth"].is_enabled
    assert rules["oldest"] == AlertSettings().rules["oldest"]


def test_a_section_of_an_environment_changes_only_what_it_names(tmp_path: Path) -> None:
    text = f"[alerts.rules.drain]\nlimit = 1\n{SINK}[env.test.alerts.rules.depth]\nlimit = 7\n"
    settings = load(tmp_path, text, ENV="test")
    assert (settings.rules["drain"].limit, settings.rules["depth"].limit) == (1.0, 7.0)
    assert [sink.name for sink in settings.sinks] == ["log", "ops"]


def test_sinks_of_each_kind_are_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    text = f"""
    [alerts.sinks.ops]
    kind = "webhook"
    url = "https://h.example/x"
    secret_file = "{tmp_path}/secret"
    tasks = ["dead"]
    [alerts.sinks.chat]
    kind = "slack"
    url = "https://h.example/y"
    timeout = "3s"
    [alerts.sinks.page]
    kind = "command"
    command = ["page", "oncall"]
    """
    log, ops, chat, page = load(tmp_path, text).sinks
    assert isinstance(log, LogSink)
    assert isinstance(ops, WebhookSink)
    assert (ops.secrets, ops.tasks.states) == ((SECRET,), ("dead",))
    assert isinstance(chat, SlackSink)
    assert chat.timeout == 3.0
    assert isinstance(page, CommandSink)
    assert page.command == ("page", "oncall")


def test_variables_make_sinks_and_the_ping(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        ALERTS_WEBHOOK_URL="https://h.example/x",
        ALERTS_WEBHOOK_SECRET=SECRET,
        ALERTS_SLACK_URL="https://h.example/y",
        ALERTS_PING_URL="https://ping.example/z",
    )
    assert [sink.name for sink in settings.sinks] == ["log", "webhook", "slack"]
    assert settings.ping_url == "https://ping.example/z"


@pytest.mark.parametrize(
    "text",
    [
        "[alerts]\nintervall = 3",
        "[alerts]\ninterval = 0",
        "[alerts.rules.drian]\nlimit = 3",
        "[alerts.rules.drain]\nlimit = -1",
        "[alerts.rules.drain]\nlimit = 'soon'",
        "[alerts.rules.failure_rate]\nlimit = 20",
        "[alerts.rules.drain]\nseverity = 'high'",
        "[alerts.rules.drain]\nclear = 2",
        "[alerts.rules.drain.only.main]\nonly = 3",
        "[alerts.sinks.ops]\nurl = 'https://h.example/x'",
        "[alerts.sinks.ops]\nkind = 'mail'",
        "[alerts.sinks.ops]\nkind = 'command'",
        "[alerts.sinks.log]\nkind = 'slack'\nurl = 'https://h.example'",
        SINK + "tasks = ['lost']",
        SINK + "secret_file = '/nonexistent'",
    ],
)
def test_a_setting_that_cannot_work_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert refused.value.message.startswith("tidegate.toml [alerts")
    assert refused.value.fix


@pytest.mark.parametrize(
    "text",
    [
        SINK.replace(SECRET, "whsec_hidden"),
        SINK.replace("https://h.example", "ftp://h.example"),
        SINK.replace('"https://h.example/T0/hidden"', '["https://h.example/T0/hidden"]'),
        "[alerts]\nping_url = 'gopher://h.example/hidden'",
    ],
)
def test_no_error_and_no_repr_shows_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert "hidden" not in str(refused.value)
    shown = repr(
        load(tmp_path, SINK + "[alerts.sinks.chat]\nkind = 'slack'\nurl = 'https://h.example/hidden'")
    )
    assert "hidden" not in shown
    assert SECRET not in shown
