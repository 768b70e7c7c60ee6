"""TCP keepalive: keep idle connections open through gateways, and detect a dead server."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

_OPTIONS = (
    # After 15 s without traffic the kernel probes the other side every 5 s, three times.
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    # If sent data is not acknowledged within this many milliseconds, the connection fails.
    ("TCP_USER_TIMEOUT", 20_000),
)
"""Firewalls and NAT gateways drop an idle connection after 4 to 6 minutes, some after one. Source of the
options: tcp(7); libpq has them as `keepalives_idle` and the like."""


def keep_alive(connection: Any) -> None:
    """Set TCP keepalive on an asyncpg connection; options that the system does not have are skipped."""
    transport = getattr(connection, "_transport", None)
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        if hasattr(socket, name):
            with suppress(OSError):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
