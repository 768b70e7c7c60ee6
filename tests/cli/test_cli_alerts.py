"""`tidegate alerts`: exit codes, mutes and the trial of a sink."""

from __future__ import annotations

from cli_support import Workspace

from tidegate.store.alert_rows import Episode, EpisodeState, PassResult, Severity
from tidegate.store.protocol import Store


async def open_alert(store: Store) -> None:
    begun = await store.begin_alert_pass("test", interval_seconds=15.0)
    assert begun is not None
    episode = Episode(
        "e1", "gate_parked", "openai", EpisodeState.OPEN, Severity.WARNING, begun.at - 60.0, begun.at, None, begun.at,
        None, 40.0, 0.0, "the reason is quota", is_notified=True,
    )  # fmt: skip
    assert await store.end_alert_pass(begun.number, PassResult(episodes=[episode]))


def test_check_makes_a_pass_where_nothing_else_does(workspace: Workspace) -> None:
    assert "nothing evaluates alerts (never)" in workspace.run("alerts", "ls").stderr
    assert "no alert is open" in workspace.run("alerts", "check").stderr
    assert "nothing evaluates" not in workspace.run("alerts", "ls").stderr


def test_check_fails_while_an_alert_is_open_and_not_muted(workspace: Workspace) -> None:
    workspace.ask(open_alert)
    found = workspace.run("alerts", "check", code=1)
    assert "upstream openai: its gate is closed, and tasks wait: 40; the reason is quota" in found.stdout
    assert "more: tidegate upstreams" in found.stderr
    workspace.run("alerts", "check", "--severity", "critical")
    workspace.run("alerts", "mute", "gate_parked", "openai", "--for", "2h", "--why", "invoice")
    workspace.run("alerts", "check")
    listed = workspace.run("alerts", "ls")
    assert "open (muted)" in listed.stdout
    assert "muted: gate_parked openai" in listed.stderr
    assert "invoice" in listed.stderr
    workspace.run("alerts", "unmute", "gate_parked", "openai")
    (alert,) = workspace.lines("alerts", "check", "--json", code=1)
    assert (alert["rule"], alert["subject"], alert["muted"]) == ("gate_parked", "openai", False)


def test_an_unknown_rule_or_sink_is_refused_with_the_known_ones(workspace: Workspace) -> None:
    assert "dead_surge" in workspace.run("alerts", "mute", "dead_serge", code=2).stderr
    assert "known here: log" in workspace.run("alerts", "test", "--sink", "ops", code=2).stderr


def test_the_trial_of_a_sink_that_cannot_be_reached_fails(workspace: Workspace) -> None:
    (workspace.directory / "tidegate.toml").write_text(
        '[alerts.sinks.chat]\nkind = "slack"\nurl = "http://127.0.0.1:9/T0/hidden"\n'
    )
    log, chat = workspace.lines("alerts", "test", "--json", code=1)
    assert (log["sink"], log["error"]) == ("log", "")
    assert "private address" in chat["error"]
    assert "hidden" not in str(chat)
