"""No connection leaves a process while its network is blocked."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from tidegate.testing.kit.network_guard import NetworkBlockedError, blocked_network


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_a_connection_is_refused_by_name_and_allowed_again_afterwards(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    message = f"a replay may not use the network.*127.0.0.1:{port}"
    with blocked_network(what="a replay") as refused, pytest.raises(NetworkBlockedError, match=message):
        connect(port)
    assert refused == [f"127.0.0.1:{port}"]
    connect(port)


def test_a_name_is_not_resolved() -> None:
    with blocked_network() as refused, pytest.raises(NetworkBlockedError, match=r"api\.example\.com:443"):
        socket.getaddrinfo("api.example.com", 443)
    assert refused == ["api.example.com:443"]


def test_an_address_is_not_looked_up() -> None:
    with blocked_network() as refused:
        with pytest.raises(NetworkBlockedError):
            socket.gethostbyaddr("192.0.2.1")
        with pytest.raises(NetworkBlockedError):
            socket.getnameinfo(("192.0.2.1", 80), 0)
    assert refused == ["192.0.2.1", "192.0.2.1:80"]


def test_an_address_is_refused_too(listener: socket.socket) -> None:
    with blocked_network() as refused, socket.socket() as one, pytest.raises(NetworkBlockedError):
        one.connect(listener.getsockname())
    assert len(refused) == 1


def test_datagrams_and_unix_sockets_are_refused() -> None:
    with blocked_network() as refused:
        with socket.socket(type=socket.SOCK_DGRAM) as one, pytest.raises(NetworkBlockedError):
            one.sendto(b"x", ("127.0.0.1", 9))
        with socket.socket(socket.AF_UNIX) as one, pytest.raises(NetworkBlockedError):
            one.connect("/run/postgresql/.s.PGSQL.5432")
    assert refused == ["127.0.0.1:9", "/run/postgresql/.s.PGSQL.5432"]


def test_threads_and_event_loops_are_guarded(listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    async def in_loop() -> None:
        await asyncio.open_connection("localhost", port)

    with blocked_network() as refused:
        with pytest.raises(NetworkBlockedError):
            asyncio.run(in_loop())
        errors: list[BaseException] = []

        def in_thread() -> None:
            try:
                connect(port)
            except NetworkBlockedError as error:
                errors.append(error)

        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join(5)
    assert len(errors) == 1
    assert refused == [f"localhost:{port}", f"127.0.0.1:{port}"]


def test_an_allowed_host_is_reached_by_its_name_and_by_its_address(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with blocked_network(["localhost"]) as refused:
        connect(port)
        socket.getaddrinfo("localhost", port)
        with pytest.raises(NetworkBlockedError):
            socket.getaddrinfo("api.example.com", 443)
    assert refused == ["api.example.com:443"]
