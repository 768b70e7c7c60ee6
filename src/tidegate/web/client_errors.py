"""Counts protocol errors of clients, which the server would otherwise log one by one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("tidegate.web")

REPORT_SECONDS = 60.0
"""At most one log line in this time reports the number of errors."""

_CLIENT_ERRORS = (
    "Invalid HTTP request received",
    "Unsupported upgrade request",
    "No supported WebSocket library detected",
    "Invalid UTF-8 sequence received from client",
    "ASGI callable returned without sending handshake",
    "ASGI callable returned without completing handshake",
    "opening handshake failed",
    "connection handler failed",
)
"""The beginnings of log messages of uvicorn and websockets that only a client can cause."""


class ClientErrorFilter(logging.Filter):
    """Drops the server's log records of client errors, and logs their number.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._count = 0
        self._reported_at = -REPORT_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record."""
        if not str(record.msg).startswith(_CLIENT_ERRORS):
            return True
        self._count += 1
        now = self._clock()
        if now - self._reported_at >= REPORT_SECONDS:
            count, self._count, self._reported_at = self._count, 0, now
            log.info("%d connections were closed because of protocol errors of their clients", count)
        return False
