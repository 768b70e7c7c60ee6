"""Limits slow clients and the number of connections from one address, for a server without a proxy."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from tidegate.web.open_access import is_loopback

log = logging.getLogger("tidegate.web")

_REPORT_SECONDS = 60.0

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _HttpProtocol
else:
    _HttpProtocol = AutoHTTPProtocol


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits for the connections of one client."""

    request_seconds: float = 10.0
    """How long the head of a request may take, from its first byte or from the end of the previous response.
    A client may also read nothing of a response for this long. After that the connection is closed.
    `WebSettings.read_limit` limits the time for a body."""
    per_address: int = 1_000
    """The most connections of one IPv4 address or IPv6 /64 network; 0: no limit. Loopback addresses are not
    limited, because a proxy may use them."""


def limited_protocol(limits: ClientLimits) -> Any:
    """Return a protocol class for `uvicorn.Config(http=…)` that applies the limits to every connection."""
    return functools.partial(_LimitedProtocol, limits, _RefusalCounter(limits.per_address))


class _LimitedProtocol(_HttpProtocol):
    """uvicorn's protocol for one connection, with limits."""

    def __init__(self, limits: ClientLimits, refusals: _RefusalCounter, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._refusals = refusals
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._is_upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if self._limits.per_address and _has_too_many(self.connections, address, self._limits.per_address):
            self._refusals.report(address)
            transport.abort()
            return
        self._start_timer_if_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._start_timer_if_idle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unsent = 0
        self._start_timer_if_idle()

    def handle_websocket_upgrade(self, *args: Any) -> None:
        self._is_upgraded = True
        super().handle_websocket_upgrade(*args)

    def _start_timer_if_idle(self) -> None:
        """Start the timer unless a response is being sent."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering or self._is_upgraded:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._limits.request_seconds, self._on_timeout)

    def _on_timeout(self) -> None:
        self._timer = None
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent != self._unsent:  # the client is still reading the last response
            self._unsent = unsent
            self._timer = self.loop.call_later(self._limits.request_seconds, self._on_timeout)
        else:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _RefusalCounter:
    """Counts refused connections and logs their number at most once a minute."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._reported_at = float("-inf")

    def report(self, address: str) -> None:
        self._count += 1
        now = time.monotonic()
        if now - self._reported_at < _REPORT_SECONDS:
            return
        log.warning(
            "connections refused: %d, the last from %s, which has %d open; if a proxy uses that address, "
            "raise --connections-per-address",
            self._count,
            address,
            self._limit,
        )
        self._count, self._reported_at = 0, now


def _has_too_many(connections: Any, address: str, limit: int) -> bool:
    """Return whether an address has more connections than the limit, including the newest."""
    if len(connections) <= limit or is_loopback(address):
        return False
    network = _network(address)
    return sum(bool(other.client) and _network(other.client[0]) == network for other in connections) > limit


def _network(address: str) -> str:
    """Return the network that identifies a client: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network(f"{address.partition('%')[0]}/64", strict=False))
    except ValueError:
        return address
