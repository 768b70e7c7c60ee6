"""Refuses network connections of this process, so that code can run without calling a service.

The guard covers code that uses Python's own sockets: httpx, requests, asyncio, most drivers. The guard does
not cover libraries that open their sockets in C (libpq, gRPC, libcurl), or other processes.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from typing import Any

_ADDRESS_AT = {
    "socket.connect": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
    "socket.gethostbyaddr": 0,
    "socket.getnameinfo": 0,
}
"""Audit events of Python's sockets, with the place of the address among their arguments."""

stays_blocked: ContextVar[bool] = ContextVar("tidegate_stays_blocked", default=False)
"""Set for code that may continue after its block: its connections are refused then, too."""


class NetworkBlockedError(RuntimeError):
    """The code tried to reach another program. Nothing was sent."""


class _Guard:
    """The process's one audit hook: Python can add hooks, and never removes one."""

    def __init__(self) -> None:
        self.on_address: Callable[[str], None] | None = None
        """Called with each address; raises to refuse the address. None: every address is allowed."""
        self._is_installed = False
        # The hook is still called when the interpreter has cleared the names of this module.
        self._address_at, self._stays_blocked = _ADDRESS_AT, stays_blocked

    def install(self) -> None:
        if not self._is_installed:
            self._is_installed = True
            sys.addaudithook(self._on_event)

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if (at := self._address_at.get(event)) is None:
            return
        if self.on_address is not None:
            self.on_address(_format_address(event, args, args[at]))
        elif self._stays_blocked.get():
            raise NetworkBlockedError(
                "code of a `blocked_network` block runs after the block has ended, and stays blocked"
            )


_guard = _Guard()


@contextlib.contextmanager
def blocked_network(allowed: Collection[str] = (), *, what: str = "") -> Iterator[list[str]]:
    """Refuse every connection inside the block, in all threads; yield the list of refused addresses.

    Args:
        allowed: Hosts and paths of Unix sockets that may be reached.
        what: What runs, for the message: "a replay".

    Raises:
        OSError: An allowed host cannot be resolved.
    """
    reachable = {name for host in allowed for name in (host, *_numeric(host))}
    refused: list[str] = []

    def check(address: str) -> None:
        host = address.rpartition(":")[0] or address
        if not {address, host, host.strip("[]")} & reachable:
            refused.append(address)
            raise NetworkBlockedError(
                f"{what or 'this code'} may not use the network, and it tried to reach {address}"
            )

    before = _guard.on_address
    _guard.install()
    _guard.on_address = check
    try:
        yield refused
    finally:
        _guard.on_address = before


def _numeric(host: str) -> set[str]:
    if host.startswith("/"):
        return set()
    return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}


def _format_address(event: str, args: tuple[Any, ...], address: Any) -> str:
    """Return an address as text: `host:port`, or the path of a Unix socket."""
    if event == "socket.getaddrinfo":
        address = (address, args[1])
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = _text(address[0]), address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if port else host
    return _text(address)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
