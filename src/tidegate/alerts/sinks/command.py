"""Runs a program of the operator with the message on its standard input."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Collection

from tidegate.alerts.sink_settings import CommandSink
from tidegate.alerts.sinks.errors import DeliveryError
from tidegate.store.alert_rows import ClaimedNotice


class CommandRunner:
    """Runs programs, and knows the process ids of running programs, so that no other code waits for them."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> Collection[int]:
        """The ids of the running programs."""
        return self._processes.keys()

    async def send(self, sink: CommandSink, notice: ClaimedNotice) -> None:
        """Run the program; exit code 0 means that it has delivered the message.

        The program gets the JSON on its standard input and the message's id in `TIDEGATE_ALERT_ID`. A
        repeated message has the same id. After the time limit, the program is killed with all that it
        started.

        Raises:
            DeliveryError: The program could not be started, failed, or took too long.
        """
        try:
            # This runs in the loop's thread, so that no other code reaps the process before its id is known.
            process = subprocess.Popen(  # noqa: S603, ASYNC220 - named by the operator; starting takes milliseconds
                sink.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "TIDEGATE_ALERT_ID": notice.id},
            )
        except OSError as error:
            raise DeliveryError(f"it cannot be started: {error.strerror or type(error).__name__}") from None
        self._processes[process.pid] = process
        try:
            async with asyncio.timeout(sink.timeout):
                await asyncio.to_thread(process.communicate, notice.body.encode())
        except TimeoutError:
            raise DeliveryError(f"it took longer than {sink.timeout:g} s, and was killed") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(asyncio.to_thread(process.wait))
            del self._processes[process.pid]
        if process.returncode:
            raise DeliveryError(f"its exit code is {process.returncode}")
