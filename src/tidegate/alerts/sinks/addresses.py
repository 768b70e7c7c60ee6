"""Which addresses a sink may connect to: public ones, and those that the settings allow.

Otherwise a person who may change a sink's address could reach services inside the network, such as the
metadata of a cloud machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""The only part of IPv6 that is given out. Elsewhere are forms that carry an IPv4 address, and old private
networks, some of which Python takes for public."""
_PROTOCOL_ASSIGNMENTS = ipaddress.IPv4Network("192.0.0.0/24")
"""A network that Python before 3.13 takes mostly for public. One cloud serves the metadata of its machines
there."""


def is_allowed(host: str, address: Address, allowed_hosts: Sequence[str]) -> bool:
    """Return whether a sink may connect to an address of a host.

    Args:
        host: The host of the sink's URL.
        address: The address to connect to.
        allowed_hosts: Names, addresses and networks such as `10.0.0.0/8`.
    """
    return is_public(address) or any(_matches(each, host, address) for each in allowed_hosts)


def is_public(address: Address) -> bool:
    """Return whether an address is on the public internet.

    An IPv4 address inside an IPv6 address is also checked.
    """
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    return address.is_global and not address.is_multicast and address not in _PROTOCOL_ASSIGNMENTS


def _inner(address: Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


def _matches(allowed: str, host: str, address: Address) -> bool:
    if allowed.lower().rstrip(".") == host.lower().rstrip("."):
        return True
    try:
        network = ipaddress.ip_network(allowed, strict=False)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address in network or (mapped is not None and mapped in network)
