"""The ways to send a message, one file for each. `send` chooses one by the sink's settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tidegate.alerts.sink_settings import CommandSink, LogSink, Sink, SlackSink, WebhookSink
from tidegate.alerts.sinks import log, slack, webhook
from tidegate.alerts.sinks.command import CommandRunner
from tidegate.store.alert_rows import ClaimedNotice


async def send(
    sink: Sink, notice: ClaimedNotice, *, now: float, allowed_hosts: Sequence[str], commands: CommandRunner
) -> None:
    """Send one message to one sink.

    Args:
        sink: Where to send it.
        notice: The message.
        now: Seconds since the epoch, for signatures.
        allowed_hosts: Hosts that may have private addresses.
        commands: The runner of the programs of command sinks.

    Raises:
        DeliveryError: The message was not delivered, or it is unknown whether it was.
    """
    match sink:
        case LogSink():
            log.send(notice)
        case WebhookSink():
            await webhook.send(sink, notice, now=now, allowed_hosts=allowed_hosts)
        case SlackSink():
            await slack.send(sink, notice, allowed_hosts=allowed_hosts)
        case CommandSink():
            await commands.send(sink, notice)
        case _:
            assert_never(sink)
