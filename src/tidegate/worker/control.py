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


class Line:
    """One end of the conversation. It receives in a thread of its own, so a blocked loop delays nothing.

    Args:
        end: Our end of the socket pair.
        receive: Called in that thread for each message.
        ended: Called in that thread once, when the other side is gone.
    """

    def __init__(
        self, end: socket.socket, receive: Callable[[Message], None], ended: Callable[[], None]
    ) -> None:
        self._end = end
        self._receive = receive
        self._ended = ended
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="tidegate-control", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def send(self, **message: object) -> bool:
        """Send one message; return False if the other side is gone or does not read.

        Never waits: one process that does not read must not hold up who keeps the leases of the others.
        """
        data = json.dumps(message).encode() + b"\n"
        with self._sending:
            try:
                return self._end.send(data, socket.MSG_DONTWAIT) == len(data)
            except OSError:
                return False

    def close(self) -> None:
        """Hang up. Safe to repeat."""
        try:
            self._end.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
        finally:
            self._end.close()

    def _listen(self) -> None:
        try:
            with self._end.makefile("rb") as lines:
                for line in lines:
                    self._receive(json.loads(line))
        except (OSError, ValueError):
            pass  # a broken line is the end of the conversation
        self._ended()
