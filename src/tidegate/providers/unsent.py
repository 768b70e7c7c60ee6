"""Recognises failures in which the request was not sent, so nothing can have been processed or billed.

The class name shows it: the client's connection pool was full, no connection could be made, or the client
refused the request before sending it.

Sources: httpx 0.28.1 and httpx2 2.16.2 `_exceptions.py`; aiohttp 3.14.5 `client_exceptions.py`; urllib3 2.8.0
and requests 2.34.2 `exceptions.py`; botocore 1.44.8; azure-core 1.41; grpc 1.76; the system's own errors.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence

from tidegate.providers.evidence import peek
from tidegate.providers.packs.grpc import is_unsent

_CLIENTS = {
    # PoolTimeout is a wait for one of our own connections
    "httpx, httpx2, httpcore": "ConnectError ConnectTimeout PoolTimeout ProxyError UnsupportedProtocol "
    "LocalProtocolError",
    "aiohttp": "ClientConnectorError ConnectionTimeoutError",
    "requests": "ConnectTimeout InvalidURL MissingSchema InvalidSchema",
    "urllib3": "NewConnectionError NameResolutionError ConnectTimeoutError EmptyPoolError LocationParseError",
    "botocore": "EndpointConnectionError ProxyConnectionError ConnectTimeoutError",
    "azure-core": "ServiceRequestError ServiceRequestTimeoutError",
    "python": "ConnectionRefusedError gaierror herror",
}
_NAMES = frozenset(name for names in _CLIENTS.values() for name in names.split())
_ERRNOS = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})
_MOST_LINKS = 50
_DEEPEST = 5


def never_sent(links: Sequence[BaseException]) -> str:
    """Return the name of the class that shows that nothing was sent; empty if none does.

    Args:
        links: The exception and its explicit causes.
    """
    for link in links[:_MOST_LINKS]:
        for error in _with_inner(link):
            for kind in type(error).__mro__:
                if kind.__name__ in _NAMES:
                    return kind.__name__
            if isinstance(error, OSError) and error.errno in _ERRNOS:
                return type(error).__name__
            if is_unsent(error):
                return "UNAVAILABLE"
    return ""


def _with_inner(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and those inside it: requests wraps urllib3's exception, which holds its reason."""
    for _ in range(_DEEPEST):
        yield error
        args = peek(error, "args")
        held = (peek(error, "reason"), args[0] if isinstance(args, tuple) and args else None)
        inner = next((each for each in held if isinstance(each, BaseException)), None)
        if inner is None:
            return
        error = inner
