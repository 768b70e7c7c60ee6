"""The simulated provider as a server: connections, routes, and the door that an outage shuts."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tidegate.testing.provider import control
from tidegate.testing.provider.buckets import Monotonic
from tidegate.testing.provider.http_connection import HttpConnection, MalformedError
from tidegate.testing.provider.ledger import Ledger
from tidegate.testing.provider.listener import HOST, ProviderListener
from tidegate.testing.provider.messages import NoReply, Reply, Request, json_reply
from tidegate.testing.provider.model import READERS, SimulatedModel
from tidegate.testing.provider.outages import OutageKind, OutageSchedule
from tidegate.testing.provider.refusals import Refusal, invalid_request
from tidegate.testing.provider.settings import ProviderSettings, changed

_log = logging.getLogger(__name__)
_REOPEN_SECONDS = 0.1


class SimulatedProvider:
    """A provider of AI on loopback that throttles, fails and bills as it is told to.

    Speaks OpenAI's chat and embeddings, and Anthropic's messages (whose SDK wants the `url` without `/v1`).

    Use it as `async with`, or call `start` and `stop`; it can be stopped twice, and started again. The
    ledger stays readable after `stop`.

    Args:
        settings: How to behave; None: no limits, delays or faults.
        monotonic: Clock of limits and outages, in seconds.
        clock: Seconds since the epoch, UTC; the ledger's moments.

    Raises:
        OptionError: A setting cannot work.

    Example:
        async with SimulatedProvider(ProviderSettings(requests_per_minute=60)) as provider:
            client = openai.AsyncOpenAI(base_url=provider.url, api_key="any", max_retries=0)
            ...
            assert provider.ledger.paid_twice() == []
    """

    def __init__(
        self,
        settings: ProviderSettings | None = None,
        *,
        monotonic: Monotonic = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._initial = settings or ProviderSettings()
        self.ledger = Ledger(self._initial.ledger_path)
        """Every call seen, and what became of it."""
        self._schedule = OutageSchedule(self._initial.outages, monotonic=monotonic)
        self._model = SimulatedModel(
            self._initial, ledger=self.ledger, schedule=self._schedule, monotonic=monotonic, clock=clock
        )
        self._listener = ProviderListener(self._accept)
        self._listener_lock = asyncio.Lock()
        self._has_schedule_changed = asyncio.Event()
        self._outage_job: asyncio.Task[None] | None = None
        self._connections: dict[asyncio.Task[None], HttpConnection] = {}

    @property
    def settings(self) -> ProviderSettings:
        """How it behaves now."""
        return self._model.settings

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; 0 before the first start."""
        return self._listener.port

    @property
    def url(self) -> str:
        """The base URL to give to a client, as an SDK's `base_url`."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def in_flight(self) -> int:
        """Calls being answered now."""
        return self._model.in_flight

    async def start(self) -> None:
        """Listen; the timetable of outages begins now. Does nothing when started.

        Raises:
            OSError: The port is taken.
        """
        if self._outage_job is not None:
            return
        self._schedule.restart()
        await self._listener.open(self._initial.port)
        self._outage_job = asyncio.create_task(self._follow_schedule(), name="simulated provider: door")

    async def stop(self) -> None:
        """Close the port and every connection; calls being answered are noted as stopped. Safe to repeat."""
        job, self._outage_job = self._outage_job, None
        if job is not None:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        self._listener.close()
        connections = dict(self._connections)
        for task, connection in connections.items():
            task.cancel()
            connection.abort()
        await asyncio.gather(*connections, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def begin_outage(self, kind: OutageKind, seconds: float | None = None) -> None:
        """Begin an outage now, before any planned one; in force when this returns.

        Args:
            kind: How it looks; see `OutageKind`.
            seconds: How long; None: until `end_outage`.

        Raises:
            OptionError: There is no such kind, or it would last no time.
        """
        self._schedule.begin(kind, seconds)
        await self._schedule_changed()

    async def end_outage(self) -> None:
        """End the outage begun by hand, if any; over when this returns. Planned ones keep to their times."""
        self._schedule.end()
        await self._schedule_changed()

    async def change(self, **changes: Any) -> None:
        """Change settings while running; calls being answered may still go by the old ones.

        Raises:
            OptionError: A name is unknown or fixed (`port`, `ledger_path`), or a value cannot work.
        """
        settings = changed(self.settings, changes)
        self._model.change(settings)
        self._schedule.set_planned(settings.outages)
        await self._schedule_changed()

    async def reset(self) -> None:
        """Start over as if just started: first settings, full buckets, empty ledger, timetable from now.

        Calls being answered meanwhile are still noted when their fate is known.
        """
        self.ledger.clear()
        self._model.reset(self._initial)
        self._schedule.set_planned(self._initial.outages)
        self._schedule.restart()
        await self._schedule_changed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = HttpConnection(reader, writer)
        task = asyncio.create_task(self._serve_connection(connection), name="simulated provider: connection")
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)

    async def _serve_connection(self, connection: HttpConnection) -> None:
        try:
            await self._serve_requests(connection)
        except ConnectionError:
            pass  # The client went away; what it asked for is in the ledger.
        except MalformedError as fault:
            await self._send_last_error(connection, invalid_request(str(fault), status=fault.status))
        except Exception:
            _log.exception("the simulated provider failed on a request")
            await self._send_last_error(
                connection, Refusal(500, "server_error", "The simulated provider has a fault.")
            )
        finally:
            await connection.close()

    async def _serve_requests(self, connection: HttpConnection) -> None:
        keep_alive = True
        while keep_alive:
            request = await connection.next_request(max_body_bytes=self.settings.max_body_bytes)
            if request is None:
                return
            reply = await self._route(request)
            if isinstance(reply, NoReply):
                await self._end_without_reply(connection, reply)
                return
            keep_alive = await connection.send(_with_request_id(reply), last=not self._listener.is_open)

    async def _end_without_reply(self, connection: HttpConnection, no_reply: NoReply) -> None:
        if no_reply.ending == "hang":
            await connection.hang()
        else:
            connection.reset()

    async def _send_last_error(self, connection: HttpConnection, refusal: Refusal) -> None:
        try:
            if connection.can_reply:
                await connection.send(_with_request_id(refusal.reply()), last=True)
                await connection.linger()
        except OSError:
            connection.abort()

    async def _route(self, request: Request) -> Reply | NoReply:
        match request.method, request.path:
            case "POST", path if path in READERS:
                return await self._model.call(request)
            case "GET", "/v1/models":
                return self._model.models(request)
            case "GET", "/healthz":
                return json_reply(200, {"status": "ok"})
            case _, path if path.startswith(control.PREFIX):
                return await control.answer(self, request)
            case _, path if path in (*READERS, "/v1/models", "/healthz"):
                return invalid_request(f"Not allowed to {request.method} {path}.", status=405).reply()
            case _:
                return invalid_request(f"Unknown URL: {request.method} {request.path}", status=404).reply()

    async def _schedule_changed(self) -> None:
        if self._outage_job is not None:
            await self._apply_outage()
            self._has_schedule_changed.set()

    async def _follow_schedule(self) -> None:
        """Shut and open the door at the times of the timetable, and whenever the plan changes."""
        while True:
            self._has_schedule_changed.clear()
            wait = self._schedule.next_change_seconds()
            try:
                await self._apply_outage()
            except OSError:
                _log.exception("the simulated provider cannot listen on port %s again", self.port)
                wait = _REOPEN_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await self._has_schedule_changed.wait()
            except TimeoutError:
                continue

    async def _apply_outage(self) -> None:
        async with self._listener_lock:
            if self._schedule.current != "refuse":
                await self._listener.open(self.port)
            elif self._listener.is_open:
                self._listener.refuse()
                for connection in [
                    connection for connection in self._connections.values() if connection.idle
                ]:
                    connection.abort()


def _with_request_id(reply: Reply) -> Reply:
    return reply.with_headers({"x-request-id": f"req_{uuid.uuid4().hex}"})
