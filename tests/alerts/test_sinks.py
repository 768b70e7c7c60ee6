"""Messages are signed as Standard Webhooks says, and reach public addresses only."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import ipaddress
import json
import logging
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from tidegate.alerts.signature import decode_secret
from tidegate.alerts.sink_settings import CommandSink, LogSink, Sink, SlackSink, WebhookSink
from tidegate.alerts.sinks import send
from tidegate.alerts.sinks.addresses import is_allowed, is_public
from tidegate.alerts.sinks.command import CommandRunner
from tidegate.alerts.sinks.errors import DeliveryError
from tidegate.alerts.sinks.http import post
from tidegate.errors import OptionError
from tidegate.store.alert_rows import ClaimedNotice
from webhook_receiver import Receiver

pytestmark = pytest.mark.anyio

SECRET, OLD_SECRET = ("whsec_" + base64.b64encode(bytes([each]) * 32).decode() for each in (1, 2))
BODY = json.dumps(
    {
        "type": "alert.opened",
        "timestamp": "2026-03-01T10:00:00Z",
        "data": {"text": "queue <!here> & é", "severity": "critical"},
    }
)
NOTICE = ClaimedNotice("msg_1", "ops", "e1", "alert.opened", BODY, 0.0, 1)
LOOPBACK = ("127.0.0.1",)


async def send_here(
    sink: Sink, *, allowed_hosts: tuple[str, ...] = LOOPBACK, notice: ClaimedNotice = NOTICE
) -> None:
    await send(sink, notice, now=time.time(), allowed_hosts=allowed_hosts, commands=CommandRunner())


# --- the signature ---------------------------------------------------------------------------------------


async def test_each_secret_signs_a_message_so_that_one_can_be_replaced(receiver: Receiver) -> None:
    await send_here(WebhookSink("ops", f"{receiver.url}/hook?a=1", [SECRET, OLD_SECRET]))
    (request,) = receiver.requests
    signed = f"msg_1.{request.headers['webhook-timestamp']}.".encode() + BODY.encode()
    keys = [base64.b64decode(each.removeprefix("whsec_")) for each in (SECRET, OLD_SECRET)]
    expected = [base64.b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys]
    assert request.headers["webhook-signature"] == f"v1,{expected[0]} v1,{expected[1]}"
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60.0
    assert (request.method, request.path, request.body) == ("POST", "/hook?a=1", BODY.encode())
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == "msg_1"


def test_a_secret_has_24_to_64_bytes() -> None:
    for size, is_valid in ((23, False), (24, True), (64, True), (65, False)):
        text = "whsec_" + base64.b64encode(b"x" * size).decode()
        assert (decode_secret(text) is not None) == is_valid
    for text in ("", "whsec_", "whsec_***", SECRET.removeprefix("whsec_")):
        assert decode_secret(text) is None


def test_neither_an_error_nor_a_repr_shows_a_secret() -> None:
    with pytest.raises(OptionError) as refused:
        WebhookSink("ops", "https://example.com/T0P/hidden", ["whsec_hidden"])
    with pytest.raises(OptionError) as no_url:
        SlackSink("chat", "https://user:hidden@example.com/hidden")
    assert "hidden" not in str(refused.value) + str(no_url.value)
    sinks = (
        WebhookSink("ops", "https://example.com/T0P/hidden", [SECRET]),
        CommandSink("page", ["page", "--token", "hidden"]),
    )
    for sink in sinks:
        assert "hidden" not in repr(sink) + sink.target
        assert SECRET not in repr(sink)


# --- addresses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1",
        "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
        "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:53aa:64c:0:0:80ff:fffe",
        "64:ff9b:1::a00:1", "::127.0.0.1", "::ffff:0:127.0.0.1", "fec0::1",
    ],
)  # fmt: skip
def test_a_private_address_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "203.0.114.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("allowed", ["hooks.internal", "HOOKS.internal.", "10.0.0.7", "10.0.0.0/8"])
def test_a_private_address_can_be_allowed_by_name_address_or_network(allowed: str) -> None:
    address = ipaddress.ip_address("10.0.0.7")
    assert is_allowed("hooks.internal", address, [allowed])
    assert not is_allowed("other.internal", ipaddress.ip_address("192.168.0.7"), [allowed])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "127.1", "0"])
async def test_no_spelling_of_the_loopback_address_is_reached(receiver: Receiver, host: str) -> None:
    port = receiver.url.rpartition(":")[2]
    with pytest.raises(DeliveryError, match=r"private address|no address"):
        await send_here(SlackSink("chat", f"http://{host}:{port}/"), allowed_hosts=())
    assert receiver.requests == []


async def test_the_connection_is_made_to_the_address_that_was_checked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server could return a public address at the check, and a private one at the connection."""
    answers = iter(["127.0.0.1", "127.0.0.2"])
    looked_up: list[str] = []

    def getaddrinfo(host: str, port: int, *rest: object, **options: object) -> list[object]:
        looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    port = receiver.url.rpartition(":")[2]
    await send_here(SlackSink("chat", f"http://hooks.example:{port}/"), allowed_hosts=LOOPBACK)
    assert looked_up == ["hooks.example"]
    assert receiver.requests[0].headers["host"] == f"hooks.example:{port}"


async def test_a_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: int, *rest: object, **options: object) -> list[object]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in ("1.1.1.1", "169.254.169.254")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(DeliveryError, match="private address"):
        await send_here(SlackSink("chat", "http://metadata.example/"), allowed_hosts=())


# --- responses -------------------------------------------------------------------------------------------


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 307, {"location": f"{receiver.url}/other"}
    with pytest.raises(DeliveryError, match="redirects are not followed"):
        await send_here(SlackSink("chat", receiver.url))
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("header", "seconds"), [("120", 120.0), ("999999999", 86_400.0), ("soon", None), ("-5", None)]
)
async def test_the_wait_that_a_receiver_asks_for_is_read(
    receiver: Receiver, header: str, seconds: float | None
) -> None:
    receiver.status, receiver.headers = 429, {"retry-after": header}
    with pytest.raises(DeliveryError, match="it answered 429") as refused:
        await send_here(SlackSink("chat", receiver.url))
    assert refused.value.wait_seconds == seconds
    assert not refused.value.is_gone


async def test_410_means_that_no_more_messages_are_wanted(receiver: Receiver) -> None:
    receiver.status = 410
    with pytest.raises(DeliveryError) as refused:
        await send_here(SlackSink("chat", receiver.url))
    assert refused.value.is_gone


async def test_a_receiver_that_does_not_answer_costs_its_time_limit(receiver: Receiver) -> None:
    may_answer = threading.Event()
    receiver.before_answer = lambda: bool(may_answer.wait(30.0)) or None
    started = time.monotonic()
    with pytest.raises(DeliveryError, match=r"no answer in 0\.3 s"):
        await send_here(SlackSink("chat", receiver.url, timeout=0.3))
    assert time.monotonic() - started < 5.0
    may_answer.set()


async def test_a_receiver_that_sends_one_byte_after_the_other_costs_its_time_limit() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while not reader.at_eof():
                writer.write(b"H")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await reader.read(1_000)
        writer.close()
        is_over.set()

    is_over = asyncio.Event()
    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(DeliveryError, match=r"no answer in 0\.3 s|no HTTP response"):
            await post(f"http://127.0.0.1:{port}/", b"", {}, seconds=0.3, allowed_hosts=LOOPBACK)
        await is_over.wait()


async def test_a_port_on_which_nothing_listens_is_named_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(DeliveryError, match="no connection"):
        await send_here(SlackSink("chat", f"http://127.0.0.1:{port}/"))


async def test_a_certificate_that_nobody_trusts_is_refused(receiver: Receiver) -> None:
    with pytest.raises(DeliveryError, match=r"no secure connection|no connection"):
        await send_here(SlackSink("chat", receiver.url.replace("http:", "https:")))


# --- other sinks -----------------------------------------------------------------------------------------


async def test_a_chat_finds_no_mention_in_a_message(receiver: Receiver) -> None:
    await send_here(SlackSink("chat", receiver.url))
    assert json.loads(receiver.requests[0].body) == {"text": ":red_circle: queue &lt;!here&gt; &amp; é"}


async def test_a_critical_alert_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tidegate.alerts"):
        await send_here(LogSink("log"))
    assert [(each.levelno, each.message) for each in caplog.records] == [(logging.ERROR, "queue <!here> & é")]


async def test_a_program_gets_the_message_and_its_id(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['TIDEGATE_ALERT_ID'] + sys.stdin.read())"
    await send_here(CommandSink("page", [sys.executable, "-c", code, str(out)]))
    assert out.read_text() == "msg_1" + BODY


async def test_a_program_that_fails_or_is_missing_has_not_delivered() -> None:
    with pytest.raises(DeliveryError, match="its exit code is 7"):
        await send_here(CommandSink("page", [sys.executable, "-c", "raise SystemExit(7)"]))
    with pytest.raises(DeliveryError, match="it cannot be started"):
        await send_here(CommandSink("page", ["/nonexistent/program"]))


async def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    out = tmp_path / "pid"
    code = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        f"open({str(out)!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    runner = CommandRunner()
    with pytest.raises(DeliveryError, match="it took longer than 2 s, and was killed"):
        await runner.send(CommandSink("page", [sys.executable, "-c", code], timeout=2.0), NOTICE)
    assert list(runner.pids) == []
    stat = Path(f"/proc/{out.read_text()}/stat")
    async with asyncio.timeout(10.0):
        while stat.exists() and stat.read_text().split()[2] != "Z":
            await asyncio.sleep(0.01)


async def test_a_message_larger_than_a_pipe_does_not_block_a_program_that_reads_nothing() -> None:
    large = ClaimedNotice("msg_1", "page", "e1", "alert.opened", "x" * 300_000, 0.0, 1)
    await send_here(CommandSink("page", [sys.executable, "-c", "pass"]), notice=large)
