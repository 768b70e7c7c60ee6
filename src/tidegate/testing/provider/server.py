"""The server of the simulated provider: connections, routes, and the port that an outage closes."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidegate.testing.provider import control
from tidegate.testing.provider.buckets import Monotonic
from tidegate.testing.provider.ledger import Ledger
from tidegate.testing.provider.listener import HOST, ProviderListener
from tidegate.testing.provider.messages import Request, json_response
from tidegate.testing.provider.model import READERS, SimulatedModel
from tidegate.testing.provider.outages import OutageKind, OutageSchedule
from tidegate.testing.provider.refusals import Refusal, invalid_request
from tidegate.testing.provider.settings import ProviderSettings, changed

_log = logging.getLogger(__name__)
_REOPEN_SECONDS = 0.1


class SimulatedProvider:
    """An AI provider on loopback that throttles, fails and bills as its settings say.

    Speaks OpenAI's chat and embeddings, and Anthropic's messages (whose SDK needs the `url` without `/v1`).

    Use it with `async with`, or call `start` and `stop`. The server may be stopped twice and started again.
    The ledger stays readable after `stop`.

    Args:
        settings: Limits, delays and faults; None for no limits, delays or faults.
        monotonic: Clock of limits and outages, in seconds.
        clock: Returns seconds since the epoch, UTC, for the ledger.

    Raises:
        OptionError: A setting is invalid.

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
        """Every call and its outcome."""
        self._schedule = OutageSchedule(self._initial.outages, monotonic=monotonic)
        self._model = SimulatedModel(
            self._initial, ledger=self.ledger, schedule=self._schedule, monotonic=monotonic, clock=clock
        )
        self._listener = ProviderListener(self._serve)
        self._listener_lock = asyncio.Lock()
        self._has_schedule_changed = asyncio.Event()
        self._outage_job: asyncio.Task[None] | None = None

    @property
    def settings(self) -> ProviderSettings:
        """The present settings."""
        return self._model.settings

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; 0 before the first start."""
        return self._listener.port

    @property
    def url(self) -> str:
        """The base URL for clients: the `base_url` of an SDK."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def in_flight(self) -> int:
        """Number of calls that are being processed."""
        return self._model.in_flight

    async def start(self) -> None:
        """Start to listen. The timetable of outages starts now. Does nothing if started already.

        Raises:
            OSError: The port is taken.
        """
        if self._outage_job is not None:
            return
        self._schedule.restart()
        await self._listener.open(self._initial.port)
        self._outage_job = asyncio.create_task(self._follow_schedule(), name="simulated provider: outages")

    async def stop(self) -> None:
        """Close the port and every connection; calls in progress are recorded as stopped. Safe to repeat."""
        job, self._outage_job = self._outage_job, None
        if job is not None:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        await self._listener.close()

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
        """Start an outage now, before any planned one. The outage is active when this call returns.

        Args:
            kind: The kind of outage; see `OutageKind`.
            seconds: How long; None: until `end_outage`.

        Raises:
            OptionError: The kind is unknown, or `seconds` is not above 0.
        """
        self._schedule.begin(kind, seconds)
        await self._schedule_changed()

    async def end_outage(self) -> None:
        """End the outage that `begin_outage` started, if any. Planned outages keep their times."""
        self._schedule.end()
        await self._schedule_changed()

    async def change(self, **changes: Any) -> None:
        """Change settings while running. Calls in progress may still use the old ones.

        Raises:
            OptionError: A name is unknown or fixed (`port`, `ledger_path`), or a value is invalid.
        """
        settings = changed(self.settings, changes)
        self._model.change(settings)
        self._schedule.set_planned(settings.outages)
        await self._schedule_changed()

    async def reset(self) -> None:
        """Start over as if just started: first settings, full buckets, empty ledger, timetable from now.

        Calls in progress are still recorded when they end.
        """
        self.ledger.clear()
        self._model.reset(self._initial)
        self._schedule.set_planned(self._initial.outages)
        self._schedule.restart()
        await self._schedule_changed()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application: answer one request."""
        try:
            response = await self._route(scope, receive)
        except ClientDisconnect:
            raise
        except Exception:
            _log.exception("the simulated provider failed on a request")
            response = Refusal(500, "server_error", "The simulated provider has a fault.").response()
        response.headers.setdefault("x-request-id", f"req_{uuid.uuid4().hex}")
        if not self._listener.is_open:
            response.headers["connection"] = "close"
        await response(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive) -> Response:
        head = HttpRequest(scope, receive)
        body = await self._read_body(head)
        if body is None:
            limit = self.settings.max_body_bytes
            return invalid_request(f"The request body is larger than {limit} bytes.", status=413).response()
        request = Request(head.method, scope["path"], head.headers, body)
        match request.method, request.path:
            case "POST", path if path in READERS:
                return await self._model.call(request)
            case "GET", "/v1/models":
                return self._model.models(request)
            case "GET", "/healthz":
                return json_response(200, {"status": "ok"})
            case _, path if path.startswith(control.PREFIX):
                return await control.answer(self, request)
            case _, path if path in (*READERS, "/v1/models", "/healthz"):
                return invalid_request(f"Not allowed to {request.method} {path}.", status=405).response()
            case _:
                message = f"Unknown URL: {request.method} {request.path}"
                return invalid_request(message, status=404).response()

    async def _read_body(self, head: HttpRequest) -> bytes | None:
        """Return the body; None if it is too large."""
        body = bytearray()
        async for chunk in head.stream():
            body += chunk
            if len(body) > self.settings.max_body_bytes:
                return None
        return bytes(body)

    async def _schedule_changed(self) -> None:
        if self._outage_job is not None:
            await self._apply_outage()
            self._has_schedule_changed.set()

    async def _follow_schedule(self) -> None:
        """Close and open the port at the times of the timetable, and when the plan changes."""
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
            else:
                self._listener.refuse()
