"""Notifies systemd of the state of a service that it started with `Type=notify` (or `notify-reload`).

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
    """Sends messages to systemd's notify socket. Without a socket, every method does nothing.

    Args:
        environment: The variables of the environment name the socket and the watchdog. These variables are
            removed, so that processes started from here cannot notify systemd in our name.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address, span, pid = (environment.pop(name, "") for name in _OURS)
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        watched = span.isdecimal() and int(span) > 0 and pid in ("", str(os.getpid()))
        self.watchdog_seconds = int(span) / 1e6 if watched else None
        """systemd restarts this process after these seconds without a message; None if no watchdog is set."""

    def ready(self) -> None:
        """Report that everything has started or restarted."""
        self._notify("READY=1")

    def reloading(self) -> None:
        """Report that everything is restarting, until `ready` is called."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._notify("STOPPING=1")

    def alive(self) -> None:
        """Reset the watchdog's timer."""
        self._notify("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Report one line of status text, for `systemctl status`."""
        self._notify(f"STATUS={' '.join(text.split())}")

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.setblocking(False)  # a socket that nobody reads must not block us
            end.sendto("\n".join(lines).encode(), self._address)
