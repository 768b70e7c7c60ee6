"""What a service reports to systemd, read from a socket of the test."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worker_support import came, children, service

from support import load_app
from tidegate.worker.supervisor.systemd import SystemdNotifier


class Listener:
    """The other end of `NOTIFY_SOCKET`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._end.bind(address.replace("@", "\0", 1))
        self._end.setblocking(False)
        self.received: list[str] = []

    def messages(self) -> list[str]:
        while True:
            try:
                self.received += self._end.recv(65_536).decode().splitlines()
            except BlockingIOError:
                return self.received

    def close(self) -> None:
        self._end.close()


@pytest.fixture(params=["a path", "an abstract name"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    name = (
        str(tmp_path / "n") if request.param == "a path" else f"@tidegate-test-{os.getpid()}-{time.time_ns()}"
    )
    listening = Listener(name)
    yield listening
    listening.close()


def test_each_systemd_notification_follows_the_protocol(listener: Listener) -> None:
    systemd = SystemdNotifier({"NOTIFY_SOCKET": listener.address})
    systemd.status("2 of 2\nprocesses ready")
    systemd.ready()
    systemd.alive()
    before = time.monotonic_ns() // 1_000
    systemd.reloading()
    systemd.stopping()
    received = listener.messages()
    assert received[:4] == ["STATUS=2 of 2 processes ready", "READY=1", "WATCHDOG=1", "RELOADING=1"]
    assert before <= int(received[4].removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1_000
    assert received[5:] == ["STOPPING=1"]


def test_the_systemd_variables_are_removed_so_that_no_child_uses_them() -> None:
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1", "HOME": "/"}
    SystemdNotifier(environment)
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "5000000"}, 5.0),
        ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": str(os.getpid())}, 5.0),
        ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_used_only_if_it_names_this_process(
    variables: dict[str, str], seconds: float | None
) -> None:
    assert SystemdNotifier(dict(variables)).watchdog_seconds == seconds


@pytest.mark.parametrize("address", ["", "/nobody/listens/here"])
def test_without_a_listener_nothing_happens(address: str) -> None:
    systemd = SystemdNotifier({"NOTIFY_SOCKET": address} if address else {})
    systemd.ready()
    systemd.stopping()


def test_a_systemd_socket_that_nobody_reads_blocks_nothing(listener: Listener) -> None:
    systemd = SystemdNotifier({"NOTIFY_SOCKET": listener.address})
    began_at = time.monotonic()
    for _ in range(2_000):
        systemd.alive()
    assert time.monotonic() - began_at < 5


@pytest.mark.anyio
async def test_a_worker_notifies_systemd_of_start_reload_and_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: Listener
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    client: Any = load_app("supervised", tmp_path, monkeypatch)
    variables = {"NOTIFY_SOCKET": listener.address, "WATCHDOG_USEC": "400000"}
    with service(tmp_path, "worker", "supervised:app", **variables) as worker:
        await came(lambda: "READY=1" in listener.messages(), "it is ready")
        before_write = listener.received.index("READY=1")
        assert any(
            re.match(r"STATUS=1 of 1 processes ready", line) for line in listener.received[: before_write + 1]
        )
        assert "WATCHDOG=1" in listener.received
        for pid in children(worker.pid):
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()
        worker.process.send_signal(signal.SIGHUP)
        await came(lambda: listener.messages().count("READY=1") == 2, "it is ready again")
        begun = listener.received.index("RELOADING=1")
        again = listener.received.index("READY=1", before_write + 1)
        assert before_write < begun < again
        assert listener.received[begun + 1].startswith("MONOTONIC_USEC=")
        notified = listener.messages().count("WATCHDOG=1")
        await came(
            lambda: listener.messages().count("WATCHDOG=1") >= notified + 3,
            "the watchdog is notified",
            within=3,
        )
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert listener.messages().count("STOPPING=1") == 1
        assert listener.received.index("STOPPING=1") > again
    await client.app.aclose()
