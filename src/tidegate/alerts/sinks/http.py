"""Sends a request to a checked address: no redirects, no proxy, a limit for the whole exchange.

The address is resolved and checked first, and the connection is made to that address. A name that is resolved
twice could have a public address at the check and a private one at the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, urlsplit

from tidegate._version import __version__
from tidegate.alerts.sinks.addresses import Address, is_allowed
from tidegate.alerts.sinks.errors import DeliveryError

_LONGEST_WAIT_SECONDS = 86_400.0
_GONE = 410
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Response:
    """The status of a response, and how many seconds the server asks to wait."""

    status: int
    retry_after: float | None = None


def require_success(response: Response) -> None:
    """Raise `DeliveryError` unless the status is 2xx."""
    if 200 <= response.status < 300:
        return
    if response.status == _GONE:
        raise DeliveryError("it answered 410: it wants no more messages", is_gone=True)
    why = f"it answered {response.status}"
    if 300 <= response.status < 400:
        why += ", and redirects are not followed"
    raise DeliveryError(why, wait_seconds=response.retry_after)


async def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    allowed_hosts: Sequence[str],
    method: str = "POST",
) -> Response:
    """Send a request and return the response with any status. The body of the response is not read.

    Args:
        url: An http or https URL.
        body: The request's body.
        headers: More headers.
        seconds: The limit for the whole exchange.
        allowed_hosts: Hosts that may have private addresses.
        method: The method.

    Raises:
        DeliveryError: The address is refused, or there was no response in time.
    """
    parts = urlsplit(url)
    exchange = _Exchange(parts, method, body, dict(headers), seconds)
    try:
        async with asyncio.timeout(seconds):
            addresses = await _resolve(parts, allowed_hosts)
            return await asyncio.to_thread(exchange.run, addresses)
    except TimeoutError:
        raise DeliveryError(f"no answer in {seconds:g} s") from None
    except ssl.SSLError as error:
        raise DeliveryError(f"no secure connection: {error.reason or type(error).__name__}") from None
    except OSError as error:
        raise DeliveryError(f"no connection: {error.strerror or type(error).__name__}") from None
    except http.client.HTTPException as error:
        raise DeliveryError(f"no HTTP response: {type(error).__name__}") from None
    finally:
        exchange.abort()


async def _resolve(parts: SplitResult, allowed_hosts: Sequence[str]) -> list[Address]:
    """Return the addresses of a host.

    Raises:
        DeliveryError: One of the addresses is private, or the host has no address.
    """
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise DeliveryError("the host's name has no address") from None
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    if not addresses:
        raise DeliveryError("the host's name has no address")
    if not all(is_allowed(host, address, allowed_hosts) for address in addresses):
        raise DeliveryError(
            "the host has a private address; to allow it, add the host to allow_hosts of [alerts]"
        )
    return addresses


@dataclass(slots=True)
class _Exchange:
    """One request and its response, on a thread. `abort` ends it from another thread."""

    parts: SplitResult
    method: str
    body: bytes
    headers: dict[str, str]
    seconds: float
    _socket: socket.socket | None = field(default=None, repr=False)
    _is_aborted: bool = False

    def run(self, addresses: Sequence[Address]) -> Response:
        connection = self._connect(addresses)
        try:
            path = self.parts.path or "/"
            if self.parts.query:
                path += f"?{self.parts.query}"
            headers = {"user-agent": f"tidegate/{__version__}", "connection": "close", **self.headers}
            connection.request(self.method, path, self.body, headers)
            response = connection.getresponse()
            return Response(response.status, _retry_after(response.getheader("retry-after")))
        finally:
            connection.close()

    def abort(self) -> None:
        self._is_aborted = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _connect(self, addresses: Sequence[Address]) -> http.client.HTTPConnection:
        host, port = self.parts.hostname or "", self.parts.port or _PORTS[self.parts.scheme]
        raw = self._open_socket(addresses, port)
        connection = http.client.HTTPConnection(host, self.parts.port, timeout=self.seconds)
        try:
            if self.parts.scheme == "https":
                raw = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
                self._socket = raw
        except BaseException:
            raw.close()
            raise
        connection.sock = raw
        if self.parts.scheme == "https":
            connection.default_port = _PORTS["https"]
        return connection

    def _open_socket(self, addresses: Sequence[Address], port: int) -> socket.socket:
        error: OSError = TimeoutError()
        for address in addresses:
            if self._is_aborted:
                break
            made = socket.socket(
                socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM
            )
            self._socket = made
            made.settimeout(self.seconds)
            try:
                made.connect((str(address), port))
            except OSError as caught:
                made.close()
                error = caught
            else:
                return made
        raise error


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, a day at most; None if there is no usable one."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_WAIT_SECONDS)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), _LONGEST_WAIT_SECONDS)
