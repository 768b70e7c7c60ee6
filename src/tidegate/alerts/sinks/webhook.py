"""Posts messages by the rules of Standard Webhooks: an id that stays the same, a time, and a signature."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.alerts.signature import sign
from tidegate.alerts.sink_settings import WebhookSink
from tidegate.alerts.sinks.http import post, require_success
from tidegate.store.alert_rows import ClaimedNotice


async def send(sink: WebhookSink, notice: ClaimedNotice, *, now: float, allowed_hosts: Sequence[str]) -> None:
    """Post a message. A receiver recognises a repeated message by its `webhook-id`.

    Raises:
        DeliveryError: The receiver did not accept it.
    """
    body, timestamp = notice.body.encode(), int(now)
    headers = {
        "content-type": "application/json",
        "webhook-id": notice.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(sink.secrets, notice.id, timestamp, body),
    }
    require_success(await post(sink.url, body, headers, seconds=sink.timeout, allowed_hosts=allowed_hosts))
