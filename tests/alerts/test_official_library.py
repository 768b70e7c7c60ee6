"""Signatures are those of the official library of Standard Webhooks."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from tidegate.alerts.signature import sign
from tidegate.alerts.sink_settings import WebhookSink
from tidegate.alerts.sinks.webhook import send
from tidegate.store.alert_rows import ClaimedNotice
from webhook_receiver import Receiver

pytestmark = pytest.mark.anyio

SECRET, OLD_SECRET = ("whsec_" + base64.b64encode(bytes([each]) * 32).decode() for each in (1, 2))
BODY = json.dumps({"type": "alert.opened", "timestamp": "2026-03-01T10:00:00Z", "data": {"text": "é"}})


def test_the_signature_is_that_of_the_official_library() -> None:
    at = datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)
    assert sign([SECRET], "msg_1", int(at.timestamp()), BODY.encode()) == Webhook(SECRET).sign(
        "msg_1", at, BODY
    )


@pytest.mark.parametrize("secret", [SECRET, OLD_SECRET])
async def test_a_receiver_with_the_new_or_the_old_secret_accepts_a_message(
    receiver: Receiver, secret: str
) -> None:
    notice = ClaimedNotice("msg_1", "ops", "e1", "alert.opened", BODY, 0.0, 1)
    sink = WebhookSink("ops", receiver.url, [SECRET, OLD_SECRET])
    await send(sink, notice, now=time.time(), allowed_hosts=["127.0.0.1"])
    (request,) = receiver.requests
    assert Webhook(secret).verify(request.body, request.headers) == json.loads(BODY)
