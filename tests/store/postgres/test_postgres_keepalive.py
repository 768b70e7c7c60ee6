"""The kernel keeps idle TCP connections alive."""

from __future__ import annotations

import socket

import pytest

from tidegate.store.postgres.connecting import connect


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system names its options otherwise")
async def test_tcp_keepalive_is_set_on_connections(worker_url: str) -> None:
    link = await connect(worker_url, pooler=False)
    found = link._transport.get_extra_info("socket")
    assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
    await link.close()
