"""gRPC, the protocol of Google's and other services' own clients. Errors of gRPC carry a status of their own.

Sources: grpc 1.76 `StatusCode`, `grpc.aio.AioRpcError`, `_InactiveRpcError`; google.rpc.Code.
"""

from __future__ import annotations

from tidegate.providers.evidence import Evidence, peek
from tidegate.providers.meaning import (
    AUTH,
    CANCELLED,
    INVALID,
    NETWORK,
    NOT_FOUND,
    OVERLOADED,
    RATE_LIMIT,
    SERVER_ERROR,
    TIMEOUT,
    Finding,
    table,
)
from tidegate.providers.pack import Pack

_CODES = table(
    (CANCELLED, "CANCELLED"),
    (INVALID, "INVALID_ARGUMENT FAILED_PRECONDITION OUT_OF_RANGE UNIMPLEMENTED ALREADY_EXISTS"),
    (TIMEOUT, "DEADLINE_EXCEEDED"),
    (NOT_FOUND, "NOT_FOUND"),
    (AUTH, "PERMISSION_DENIED UNAUTHENTICATED"),
    (RATE_LIMIT, "RESOURCE_EXHAUSTED"),
    (SERVER_ERROR, "ABORTED INTERNAL DATA_LOSS"),
    (OVERLOADED, "UNAVAILABLE"),
)
_NO_CONNECTION = ("failed to connect", "dns resolution failed", "name resolution", "connection refused")


def status_of(source: object) -> tuple[str, str]:
    """Return the name of a gRPC error's status and its details; empty texts if it has none."""
    for holder in (source, peek(source, "_state")):
        for name in ("_code", "code"):
            code = peek(peek(holder, name), "name")
            if isinstance(code, str) and code in _CODES:
                details = peek(holder, "_details") or peek(holder, "details")
                return code, details if isinstance(details, str) else ""
    return "", ""


def is_unsent(source: object) -> bool:
    """Return whether a gRPC call was not sent because no connection could be made."""
    code, details = status_of(source)
    return code == "UNAVAILABLE" and any(words in details.lower() for words in _NO_CONNECTION)


def _judge(evidence: Evidence) -> Finding | None:
    code, _ = status_of(evidence.source)
    if not code:
        return None
    if is_unsent(evidence.source):
        return Finding(NETWORK, "gRPC UNAVAILABLE: no connection", code)
    return Finding(_CODES[code], f"gRPC {code}", code)


GRPC = Pack(name="grpc", modules=("grpc",), judge=_judge)
