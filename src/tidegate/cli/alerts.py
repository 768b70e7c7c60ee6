"""`tidegate alerts`: list and check alerts, mute them, and test a sink."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import format_ago, format_since, printable
from tidegate.cli.output import jsonable, print_json, print_message
from tidegate.cli.table import print_table
from tidegate.config import load_config
from tidegate.domain.readers import positive_option
from tidegate.domain.text import counted
from tidegate.operations.alerts import (
    AlertOverview,
    SinkTrial,
    check_alerts,
    mute,
    read_alerts,
    try_sinks,
    unmute,
)
from tidegate.operations.pauses import current_user
from tidegate.store.alert_rows import ANY, Episode, Severity

_BY = "command line"

rule_argument = click.argument("rule", metavar="RULE")
subject_argument = click.argument("subject", metavar="[SUBJECT]", default=ANY)


@click.group()
def command() -> None:
    """List and check alerts, mute them, and test a sink."""


@command.command("ls")
@click.option("--ended", type=click.IntRange(0, 1_000), default=0, help="Also list this many ended alerts.")
@click.option("--pending", is_flag=True, help="Also list conditions that have not held for long enough yet.")
@location_options
@json_option
def list_command(ended: int, pending: bool, location: StoreLocation, as_json: bool) -> None:
    """List the open alerts, the mutes, and the messages that wait to be sent."""
    run(_list(location, ended, pending, as_json))


async def _list(location: StoreLocation, ended: int, pending: bool, as_json: bool) -> None:
    async with opened_store(location) as store:
        alerts = await read_alerts(store, ended=ended)
    shown = [*alerts.open, *(alerts.pending if pending else ()), *alerts.ended]
    if as_json:
        for episode in shown:
            print_json(episode_json(alerts, episode))
        return
    _print(alerts, shown)


@command.command("check")
@click.option(
    "--severity",
    type=click.Choice([str(each) for each in Severity]),
    default=str(Severity.WARNING),
    show_default=True,
    help="Ignore alerts of a lower severity.",
)
@location_options
@json_option
def check_command(severity: str, location: StoreLocation, as_json: bool) -> int:
    """Exit with 1 if an alert is open and not muted, else with 0.

    The command first evaluates the rules and sends messages, unless another process has just done so. So it
    also works where no worker, scheduler or web process runs: from cron, or in a pipeline.
    """
    return run(_check(location, Severity(severity), as_json))


async def _check(location: StoreLocation, least: Severity, as_json: bool) -> int:
    async with opened_store(location) as store:
        alerts = await check_alerts(store, load_config().alerts)
    alarming = alerts.alarming(least)
    if as_json:
        for episode in alarming:
            print_json(episode_json(alerts, episode))
    elif alarming:
        _print_episodes(alerts, alarming)
    else:
        print_message("no alert is open")
    return 1 if alarming else 0


@command.command("mute")
@rule_argument
@subject_argument
@click.option(
    "--for", "span", metavar="SPAN", help="How long the mute lasts: 2h, 7d. Default: until `unmute`."
)
@click.option("--why", default="", metavar="TEXT", help="The reason, shown wherever the mute is shown.")
@location_options
def mute_command(rule: str, subject: str, span: str | None, why: str, location: StoreLocation) -> None:
    """Send nothing about RULE, for one SUBJECT (a queue, an upstream…) or for all; RULE * means every rule.

    The end of an alert that was sent before is still sent. An alert that is open when the mute ends is sent
    then.
    """
    seconds = None if span is None else positive_option("--for", span)
    run(_mute(location, rule, subject, seconds, why))


async def _mute(location: StoreLocation, rule: str, subject: str, seconds: float | None, why: str) -> None:
    async with opened_store(location) as store:
        await mute(store, rule, subject, seconds=seconds, by=current_user(_BY), why=why)
    print_message(f"{rule} {subject}: muted")


@command.command("unmute")
@rule_argument
@subject_argument
@location_options
def unmute_command(rule: str, subject: str, location: StoreLocation) -> None:
    """End a mute. Give the RULE and SUBJECT with which it was made."""
    run(_unmute(location, rule, subject))


async def _unmute(location: StoreLocation, rule: str, subject: str) -> None:
    async with opened_store(location) as store:
        was_muted = await unmute(store, rule, subject, by=current_user(_BY))
    print_message(f"{rule} {subject}: {'unmuted' if was_muted else 'it was not muted'}")


@command.command("test")
@click.option("--sink", metavar="NAME", help="Test only this sink of tidegate.toml. Default: every sink.")
@location_options
@json_option
def test_command(sink: str | None, location: StoreLocation, as_json: bool) -> int:
    """Send a test message to the sinks now; exit with 1 if a message was not delivered.

    A sink that answered 410 before is used again if it accepts the message.
    """
    return run(_test(location, sink, as_json))


async def _test(location: StoreLocation, sink: str | None, as_json: bool) -> int:
    from tidegate.worker.logs import set_up_logging

    set_up_logging()
    async with opened_store(location) as store:
        tests = await try_sinks(store, load_config().alerts, sink)
    _print_tests(tests, as_json)
    return 1 if any(test.error for test in tests) else 0


def _print_tests(tests: Sequence[SinkTrial], as_json: bool) -> None:
    if as_json:
        for test in tests:
            print_json(test)
        return
    rows = [(test.sink, test.target, test.error or "delivered") for test in tests]
    print_table(["SINK", "TARGET", "RESULT"], rows)


def episode_json(alerts: AlertOverview, episode: Episode) -> dict[str, object]:
    """Return the JSON object of one alert for `--json`."""
    from tidegate.alerts.messages import command_of, describe

    found: dict[str, object] = jsonable(episode)
    return found | {
        "muted": alerts.is_muted(episode),
        "text": describe(episode),
        "command": command_of(episode),
    }


def _print(alerts: AlertOverview, shown: Sequence[Episode]) -> None:
    if shown:
        _print_episodes(alerts, shown)
    else:
        print_message("no alert is open")
    for mute_row in alerts.mutes:
        until = "until unmuted" if mute_row.until_at is None else format_ago(mute_row.until_at, alerts.at)
        why = f": {mute_row.why}" if mute_row.why else ""
        print_message(f"muted: {mute_row.rule} {mute_row.subject}, ends {until}, by {mute_row.by}{why}")
    for unsent in alerts.unsent:
        error = f": {unsent.error}" if unsent.error else ""
        oldest = format_since(unsent.oldest_at, alerts.at)
        print_message(
            f"sink {unsent.sink}: {counted(unsent.notices, 'message')} not delivered, oldest {oldest}{error}"
        )
    for sink in alerts.disabled:
        print_message(f"sink {sink.name} is not used any more: {sink.why}; try it: tidegate alerts test")
    if alerts.is_stale(load_config().alerts.interval):
        last = format_since(alerts.last_pass.finished_at or alerts.at, alerts.at)
        when = "never" if alerts.last_pass.finished_at is None else f"last {last}"
        print_message(
            f"nothing evaluates alerts ({when}): start a worker, `tidegate scheduler` or `tidegate web`"
        )


def _print_episodes(alerts: AlertOverview, shown: Sequence[Episode]) -> None:
    from tidegate.alerts.messages import command_of, describe

    rows = [
        (
            f"{each.state} (muted)" if alerts.is_muted(each) else str(each.state),
            str(each.severity),
            each.rule,
            format_since(each.first_at, alerts.at),
            describe(each),
        )
        for each in shown
    ]
    print_table(["STATE", "SEVERITY", "RULE", "SINCE", "WHAT"], rows, optional=["SINCE", "SEVERITY"])
    for line in dict.fromkeys(command_of(each) for each in shown):
        print_message(printable(f"more: {line}"))
