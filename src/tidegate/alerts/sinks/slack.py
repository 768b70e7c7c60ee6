"""Posts a text to an incoming webhook of Slack, or of another chat that takes the same form."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.alerts.sink_settings import SlackSink
from tidegate.alerts.sinks.http import post, require_success
from tidegate.store.alert_rows import ClaimedNotice, Severity

_ICONS = {Severity.CRITICAL: ":red_circle:", Severity.WARNING: ":large_yellow_circle:"}
_ENDED_ICON = ":large_green_circle:"


async def send(sink: SlackSink, notice: ClaimedNotice, *, allowed_hosts: Sequence[str]) -> None:
    """Post a message as text.

    Raises:
        DeliveryError: The receiver did not accept it.
    """
    data = msgspec.json.decode(notice.body)["data"]
    body = msgspec.json.encode({"text": f"{_icon(notice.kind, data)} {_escaped(data['text'])}"})
    headers = {"content-type": "application/json"}
    require_success(await post(sink.url, body, headers, seconds=sink.timeout, allowed_hosts=allowed_hosts))


def _icon(kind: str, data: dict[str, str]) -> str:
    if not kind.endswith(".opened"):
        return _ENDED_ICON
    return _ICONS.get(Severity(data["severity"]), _ENDED_ICON)


def _escaped(text: str) -> str:
    """Escape a text so that Slack finds no links or mentions: a queue's name may contain any text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
