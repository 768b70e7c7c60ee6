"""Tells systemd how a service is, where it was started with `Type=notify` (or `notify-reload`).

The protocol: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping

_OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class SystemdNotifier:
    """The socket that systemd listens on. Without one, nothing is told and nothing happens.

    Args:
        environment: Where the socket and the watchdog are named; they are taken out of it, so that no
            process started from here speaks for us.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address, span, pid = (environment.pop(name, "") for name in _OURS)
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        watched = span.isdecimal() and int(span) > 0 and pid in ("", str(os.getpid()))
        self.watchdog_seconds = int(span) / 1e6 if watched else None
        """We are taken for hung when we are silent for so long; None: nobody watches."""

    def ready(self) -> None:
        """Tell that everything has started, or has started anew."""
        self._notify("READY=1")

    def reloading(self) -> None:
        """Tell that everything starts anew; `ready` ends it."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self) -> None:
        """Tell that we end."""
        self._notify("STOPPING=1")

    def alive(self) -> None:
        """Pet the watchdog."""
        self._notify("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Tell in a line what goes on, for `systemctl status`."""
        self._notify(f"STATUS={' '.join(text.split())}")

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.setblocking(False)  # whoever does not listen must not hold us up
            end.sendto("\n".join(lines).encode(), self._address)
