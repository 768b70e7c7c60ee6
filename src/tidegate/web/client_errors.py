"""Counts what clients do wrong below HTTP, where the server would log each with a level of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("tidegate.web")

REPORT_SECONDS = 60.0
"""One line in so long says how many there were."""

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
"""How messages of uvicorn and websockets begin that a client alone can cause."""


class ClientErrorFilter(logging.Filter):
    """Takes such records of the server's logger out of the log, and reports their number.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._count = 0
        self._reported_at = -REPORT_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be logged."""
        if not str(record.msg).startswith(_CLIENT_ERRORS):
            return True
        self._count += 1
        now = self._clock()
        if now - self._reported_at >= REPORT_SECONDS:
            count, self._count, self._reported_at = self._count, 0, now
            log.info("%d connections or sockets of clients were refused or broken", count)
        return False
