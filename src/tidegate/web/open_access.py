"""Decides which requests need no token until the first token is created: those from this machine itself."""

from __future__ import annotations

import ipaddress
import re

from starlette.requests import HTTPConnection

from tidegate.web.settings import WebSettings

TEST_CLIENT = "testclient"
"""The client address of requests from Starlette's TestClient. A server gives an IP address instead."""

_PORT = re.compile(r":\d*$")
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.I)
_FORWARDING = frozenset(
    {
        "fastly-client-ip",
        "forwarded",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-real-ip",
    }
)
_FORWARDING_PREFIXES = (
    "cf-",
    "fly-",
    "tailscale-",
    "x-amzn-",
    "x-azure-",
    "x-envoy-",
    "x-forwarded",
    "x-original-",
)
_OLD_HTTP = "1.0"
"""nginx uses HTTP/1.0 towards servers by default; no browser or current client uses it."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def non_local_names(settings: WebSettings) -> list[str]:
    """Return the configured hosts and origins, without this machine's own."""
    origins = ((origin, _SCHEME.sub("", origin)) for origin in settings.origins)
    named = [(host, host) for host in settings.hosts] + list(origins)
    return [shown for shown, host in named if not is_loopback(_PORT.sub("", host))]


def is_from_this_machine(connection: HTTPConnection) -> bool:
    """Return whether this machine sent the request itself, without a proxy in between.

    A TCP tunnel, or a proxy that adds no header and uses HTTP/1.1, cannot be recognised.
    """
    peer = connection.client.host if connection.client else ""
    if not (is_loopback(peer) or peer == TEST_CLIENT):
        return False
    if connection.scope.get("http_version") == _OLD_HTTP:
        return False
    return not any(
        name in _FORWARDING or name.startswith(_FORWARDING_PREFIXES) for name in connection.headers
    )
