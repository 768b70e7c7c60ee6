"""The messages between supervisor and pool process: one JSON object per line over a socket pair.

To the process: `{"beat": moment}` (the lease holds until then, by the monotonic clock) and
`{"ping": true}`, both answered by `pong`; `{"set": number, "concurrency": tasks, "quiet": whether}`,
answered by `{"was_set": number, "slots": tasks}`; `{"drain": seconds}`, `{"release": true}`,
`{"lost": true}`.
To the supervisor: `{"ready": pid, "code": version, "slots": tasks}`; `{"pong": true}` (after a ping with
`{"busy": tasks, "slots": tasks}`); `{"leaving": why}` after a task called `ctx.replace_process`;
`{"done": true, "killed": number of child processes it had to kill}`.
The end of the stream means that the other process is dead.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]


class ControlConnection:
    """One end of the connection.

    The connection receives in its own thread, so a blocked event loop delays nothing.

    Args:
        sock: Our end of the socket pair.
        on_message: Called in that thread for each message.
        on_closed: Called in that thread once, when the other process is gone.
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
        """Start to receive."""
        self._thread.start()

    def send(self, **message: object) -> bool:
        """Send one message; return False if the other process is gone or does not read.

        Never waits: a process that does not read must not delay the supervisor, which renews all leases.
        """
        data = json.dumps(message).encode() + b"\n"
        with self._send_lock:
            try:
                return self._sock.send(data, socket.MSG_DONTWAIT) == len(data)
            except OSError:
                return False

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
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
            pass  # a broken line ends the connection
        self._on_closed()
