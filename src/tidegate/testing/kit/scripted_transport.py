"""The transport of a scripted upstream, for clients of `httpx2` and `httpx`, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import cache
from importlib import import_module
from typing import Any

from tidegate.errors import ConfigError
from tidegate.testing.kit.scripted_upstream import ScriptedUpstream, Step, recorded_request
from tidegate.threads.bridge import run_sync, substitute_loop

NEVER_SECONDS = 366 * 86_400.0
"""How long a call without any time limit hangs."""
_NAMES = ("httpx2", "httpx")


def make_transport(script: ScriptedUpstream, library: Any = None) -> Any:
    """Return a transport of one library that plays a script.

    Raises:
        ConfigError: Neither library is installed.
    """
    return _transport_class(_library() if library is None else library)(script)


def _library() -> Any:
    for name in _NAMES:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ConfigError("a transport needs httpx2 or httpx, and neither is installed", fix="pip install httpx2")


@cache
def _transport_class(library: Any) -> Any:
    """Return the transport class of a library.

    The class is made here, because neither library need be installed.
    """
    stream_class = _stream_class(library)

    class ScriptedTransport(library.AsyncBaseTransport, library.BaseTransport):  # type: ignore[misc]
        def __init__(self, script: ScriptedUpstream) -> None:
            self._script = script

        async def handle_async_request(self, request: Any) -> Any:
            await request.aread()
            step = self._script.take(recorded_request(request))
            if step.kind == "hang":
                await _pass_time(self._script, _read_timeout(request))
            return self._respond(step, request)

        def handle_request(self, request: Any) -> Any:
            request.read()
            step = self._script.take(recorded_request(request))
            if step.kind == "hang":
                _pass_time_sync(self._script, _read_timeout(request))
            return self._respond(step, request)

        def _respond(self, step: Step, request: Any) -> Any:
            if step.kind == "hang":
                raise library.ReadTimeout("the scripted upstream hangs", request=request)
            if step.kind == "unreachable":
                raise library.ConnectError("the scripted upstream is unreachable", request=request)
            if step.kind == "disconnect":
                raise library.RemoteProtocolError(
                    "the scripted upstream disconnected without an answer", request=request
                )
            if step.kind == "stream":
                headers = {"content-type": "text/event-stream", **step.headers}
                stream = stream_class(step, request, self._script)
                return library.Response(step.status, headers=headers, stream=stream, request=request)
            return library.Response(
                step.status, headers=dict(step.headers), content=step.content, request=request
            )

    return ScriptedTransport


@cache
def _stream_class(library: Any) -> Any:
    class ScriptedStream(library.AsyncByteStream, library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, step: Step, request: Any, script: ScriptedUpstream) -> None:
            self._step = step
            self._request = request
            self._script = script

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for number, event in enumerate(self._step.events):
                if number and self._step.pause_seconds:
                    await _pass_time(self._script, self._step.pause_seconds)
                yield event
            self._end()

        def __iter__(self) -> Iterator[bytes]:
            for number, event in enumerate(self._step.events):
                if number and self._step.pause_seconds:
                    _pass_time_sync(self._script, self._step.pause_seconds)
                yield event
            self._end()

        def _end(self) -> None:
            if self._step.breaks_off:
                raise library.RemoteProtocolError(
                    "the scripted upstream broke off its stream", request=self._request
                )

        async def aclose(self) -> None:
            return None

        def close(self) -> None:
            return None

    return ScriptedStream


def _read_timeout(request: Any) -> float:
    seconds = (request.extensions.get("timeout") or {}).get("read")
    return NEVER_SECONDS if seconds is None else float(seconds)


async def _pass_time(script: ScriptedUpstream, seconds: float) -> None:
    """Let time pass: by the loop of a drain, which jumps over it; elsewhere by the test's clock alone."""
    if _jumps(asyncio.get_running_loop()):
        await asyncio.sleep(seconds)
    else:
        script.pass_time(seconds)


def _pass_time_sync(script: ScriptedUpstream, seconds: float) -> None:
    substitute = substitute_loop.get()
    if substitute is not None and substitute.is_open and _jumps(substitute.loop):
        run_sync(asyncio.sleep(seconds))
    else:
        script.pass_time(seconds)


def _jumps(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the loop's time jumps: yes in a drain, no in a replay."""
    return "time" in vars(loop)
