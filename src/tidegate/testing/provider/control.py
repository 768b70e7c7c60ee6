"""The simulation's own routes under `/_sim/`: outages, settings, reset and the ledger's totals.

These routes work during outages too, except while connections are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from tidegate.errors import OptionError
from tidegate.testing.provider.messages import Request, json_response
from tidegate.testing.provider.outages import OutageKind
from tidegate.testing.provider.refusals import invalid_request

if TYPE_CHECKING:
    from tidegate.testing.provider.server import SimulatedProvider

PREFIX = "/_sim/"


class _OutageOrder(msgspec.Struct, forbid_unknown_fields=True):
    kind: OutageKind | None
    """None ends the outage started by hand."""
    seconds: float | None = None


async def answer(provider: SimulatedProvider, request: Request) -> Response:
    """Execute a control request; 400 if it is invalid, 404 if there is no such route."""
    handler = _ROUTES.get((request.method, request.path))
    if handler is None:
        return invalid_request(f"Unknown URL: {request.method} {request.path}", status=404).response()
    try:
        return json_response(200, await handler(provider, request.body))
    except (OptionError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        return invalid_request(str(error)).response()


async def _outage(provider: SimulatedProvider, body: bytes) -> dict[str, Any]:
    order = msgspec.json.decode(body, type=_OutageOrder)
    if order.kind is None:
        await provider.end_outage()
    elif order.kind == "refuse" and order.seconds is None:
        raise OptionError("this outage could not be ended over HTTP", fix="give its `seconds`")
    else:
        await provider.begin_outage(order.kind, order.seconds)
    return {"outage": order.kind, "seconds": order.seconds}


async def _settings(provider: SimulatedProvider, body: bytes) -> dict[str, Any]:
    changes = msgspec.json.decode(body, type=dict[str, Any])
    await provider.change(**changes)
    return {"changed": sorted(changes)}


async def _reset(provider: SimulatedProvider, body: bytes) -> dict[str, Any]:
    await provider.reset()
    return {"reset": True}


async def _summary(provider: SimulatedProvider, body: bytes) -> dict[str, Any]:
    return {**asdict(provider.ledger.summary()), "in_flight": provider.in_flight}


_ROUTES: dict[tuple[str, str], Callable[[SimulatedProvider, bytes], Awaitable[dict[str, Any]]]] = {
    ("POST", "/_sim/outage"): _outage,
    ("POST", "/_sim/settings"): _settings,
    ("POST", "/_sim/reset"): _reset,
    ("GET", "/_sim/ledger/summary"): _summary,
}
