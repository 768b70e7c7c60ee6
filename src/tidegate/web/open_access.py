"""Which requests may come in without a token while none was ever made: those from this machine itself."""

from __future__ import annotations

import ipaddress
import re

from starlette.requests import HTTPConnection

from tidegate.web.settings import WebSettings

TEST_CLIENT = "testclient"
"""What Starlette's TestClient names as the address of its client. A server names IP addresses."""

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
"""Spoken to servers by nginx unless it is configured otherwise; no browser or current client speaks it."""


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
    """Return the configured hosts and origins that name more than this machine."""
    origins = ((origin, _SCHEME.sub("", origin)) for origin in settings.origins)
    named = [(host, host) for host in settings.hosts] + list(origins)
    return [shown for shown, host in named if not is_loopback(_PORT.sub("", host))]


def is_from_this_machine(connection: HTTPConnection) -> bool:
    """Return whether a request was sent by this machine, and not handed on by a proxy that runs on it.

    A proxy that adds no header and speaks HTTP/1.1, or a TCP tunnel, cannot be recognised.
    """
    peer = connection.client.host if connection.client else ""
    if not (is_loopback(peer) or peer == TEST_CLIENT):
        return False
    if connection.scope.get("http_version") == _OLD_HTTP:
        return False
    return not any(
        name in _FORWARDING or name.startswith(_FORWARDING_PREFIXES) for name in connection.headers
    )
