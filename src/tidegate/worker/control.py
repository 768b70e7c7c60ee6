"""What supervisor and pool process say to each other: one JSON object a line over a socket pair.

To the process: `{"beat": moment}` (the lease is good until then, by the monotonic clock) and
`{"ping": true}`, both answered by `pong`; `{"drain": seconds}`, `{"release": true}`, `{"lost": true}`.
To the supervisor: `{"ready": pid}`, `{"pong": true}` (with `{"busy": tasks}` after a ping),
`{"leaving": why}` once a task asked that the process is replaced,
`{"done": true, "killed": children that had to be}`.
The end of the stream means that the other side is dead.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]


class ControlConnection:
    """One end of the conversation. It receives in a thread of its own, so a blocked loop delays nothing.

    Args:
        sock: Our end of the socket pair.
        on_message: Called in that thread for each message.
        on_closed: Called in that thread once, when the other side is gone.
    """

    def __init__(
        self, sock: socket.socket, on_message: Callable[[Message], None], on_closed: Callable[[], None]
    ) -> None:
        self._sock = sock
        self._on_message = on_message
        self._on_closed = on_closed
        self._send_lock = threading.Lock()
        self._thread = threading.Thread(target=self._receive_loop, name="tidegate-control", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def send(self, **message: object) -> bool:
        """Send one message; return False if the other side is gone or does not read.

        Never waits: one process that does not read must not hold up who keeps the leases of the others.
        """
        data = json.dumps(message).encode() + b"\n"
        with self._send_lock:
            try:
                return self._sock.send(data, socket.MSG_DONTWAIT) == len(data)
            except OSError:
                return False

    def close(self) -> None:
        """Hang up. Safe to repeat."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
        finally:
            self._sock.close()

    def _receive_loop(self) -> None:
        try:
            with self._sock.makefile("rb") as lines:
                for line in lines:
                    self._on_message(json.loads(line))
        except (OSError, ValueError):
            pass  # a broken line is the end of the conversation
        self._on_closed()
