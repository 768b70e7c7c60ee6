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
from tidegate.testing.provider.door import HOST, Door
from tidegate.testing.provider.ledger import Ledger
from tidegate.testing.provider.messages import NoReply, Reply, Request, json_reply
from tidegate.testing.provider.model import READERS, SimulatedModel
from tidegate.testing.provider.outages import OutageKind, Timetable
from tidegate.testing.provider.refusals import Refusal, invalid_request
from tidegate.testing.provider.settings import ProviderSettings, changed
from tidegate.testing.provider.wire import MalformedError, Wire

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
        self._timetable = Timetable(self._initial.outages, monotonic=monotonic)
        self._model = SimulatedModel(
            self._initial, ledger=self.ledger, timetable=self._timetable, monotonic=monotonic, clock=clock
        )
        self._door = Door(self._welcome)
        self._door_moves = asyncio.Lock()
        self._plan_changed = asyncio.Event()
        self._door_keeper: asyncio.Task[None] | None = None
        self._talks: dict[asyncio.Task[None], Wire] = {}

    @property
    def settings(self) -> ProviderSettings:
        """How it behaves now."""
        return self._model.settings

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; 0 before the first start."""
        return self._door.port

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
        if self._door_keeper is not None:
            return
        self._timetable.restart()
        await self._door.open(self._initial.port)
        self._door_keeper = asyncio.create_task(self._keep_door(), name="simulated provider: door")

    async def stop(self) -> None:
        """Close the port and every connection; calls being answered are noted as stopped. Safe to repeat."""
        keeper, self._door_keeper = self._door_keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        self._door.lock()
        talks = dict(self._talks)
        for talk, wire in talks.items():
            talk.cancel()
            wire.abort()
        await asyncio.gather(*talks, return_exceptions=True)

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
        self._timetable.begin(kind, seconds)
        await self._plan_moved()

    async def end_outage(self) -> None:
        """End the outage begun by hand, if any; over when this returns. Planned ones keep to their times."""
        self._timetable.end()
        await self._plan_moved()

    async def change(self, **changes: Any) -> None:
        """Change settings while running; calls being answered may still go by the old ones.

        Raises:
            OptionError: A name is unknown or fixed (`port`, `ledger_path`), or a value cannot work.
        """
        settings = changed(self.settings, changes)
        self._model.change(settings)
        self._timetable.replan(settings.outages)
        await self._plan_moved()

    async def reset(self) -> None:
        """Start over as if just started: first settings, full buckets, empty ledger, timetable from now.

        Calls being answered meanwhile are still noted when their fate is known.
        """
        self.ledger.clear()
        self._model.reset(self._initial)
        self._timetable.replan(self._initial.outages)
        self._timetable.restart()
        await self._plan_moved()

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        talk = asyncio.create_task(self._talk(wire), name="simulated provider: connection")
        self._talks[talk] = wire
        talk.add_done_callback(self._talks.pop)

    async def _talk(self, wire: Wire) -> None:
        try:
            await self._converse(wire)
        except ConnectionError:
            pass  # The client went away; what it asked for is in the ledger.
        except MalformedError as fault:
            await self._part(wire, invalid_request(str(fault), status=fault.status))
        except Exception:
            _log.exception("the simulated provider failed on a request")
            await self._part(wire, Refusal(500, "server_error", "The simulated provider has a fault."))
        finally:
            await wire.close()

    async def _converse(self, wire: Wire) -> None:
        going_on = True
        while going_on:
            request = await wire.next_request(max_body_bytes=self.settings.max_body_bytes)
            if request is None:
                return
            reply = await self._route(request)
            if isinstance(reply, NoReply):
                await self._leave(wire, reply)
                return
            going_on = await wire.send(_signed(reply), last=not self._door.is_open)

    async def _leave(self, wire: Wire, parting: NoReply) -> None:
        if parting.ending == "hang":
            await wire.hang()
        else:
            wire.reset()

    async def _part(self, wire: Wire, refusal: Refusal) -> None:
        try:
            if wire.can_reply:
                await wire.send(_signed(refusal.reply()), last=True)
                await wire.linger()
        except OSError:
            wire.abort()

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

    async def _plan_moved(self) -> None:
        if self._door_keeper is not None:
            await self._move_door()
            self._plan_changed.set()

    async def _keep_door(self) -> None:
        """Shut and open the door at the times of the timetable, and whenever the plan changes."""
        while True:
            self._plan_changed.clear()
            wait = self._timetable.next_change_seconds()
            try:
                await self._move_door()
            except OSError:
                _log.exception("the simulated provider cannot listen on port %s again", self.port)
                wait = _REOPEN_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await self._plan_changed.wait()
            except TimeoutError:
                continue

    async def _move_door(self) -> None:
        async with self._door_moves:
            if self._timetable.current != "refuse":
                await self._door.open(self.port)
            elif self._door.is_open:
                self._door.shut()
                for wire in [wire for wire in self._talks.values() if wire.idle]:
                    wire.abort()


def _signed(reply: Reply) -> Reply:
    return reply.adding({"x-request-id": f"req_{uuid.uuid4().hex}"})
