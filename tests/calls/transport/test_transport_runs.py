"""Calls and their run: aborted when the run is asked to stop, refused when it has ended."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import httpx2
import openai
import pytest
from permits_in_memory import MemoryPermitSource
from transport_clients import ASKED, URL, Network, client_with_transport, in_a_run, ok

from tidegate.calls.manual_call import manual_call
from tidegate.calls.settings import CallSettings
from tidegate.calls.transport.transport import UpstreamTransport
from tidegate.context import StopReason, TaskStopped
from tidegate.domain.failure import Reason, Verdict
from tidegate.errors import UsageError
from tidegate.policy.classify import classify
from tidegate.providers.requests import Sizes

SETTINGS = CallSettings("acme")


class Silent(httpx2.AsyncBaseTransport):
    """Never answers, or never goes on after the first piece of its answer."""

    def __init__(self, *, begins=False):
        self.begins = begins
        self.called = threading.Event()
        self.calls = 0

    async def handle_async_request(self, request):
        self.calls += 1
        self.called.set()
        if not self.begins:
            await asyncio.Event().wait()

        class Pieces(httpx2.AsyncByteStream):
            async def __aiter__(self):
                yield b"data: 1\n\n"
                await asyncio.Event().wait()

        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces())


def called_and_stopped(body, inner, why=StopReason.CANCEL):
    """Run a body in a thread as a run's; stop it when its call is under way; return what it raised."""

    def in_run():
        control.append(in_a_run())
        try:
            body()
        except BaseException as error:
            return error
        return None

    control = []
    with ThreadPoolExecutor(1) as threads:
        raised = threads.submit(contextvars.Context().run, in_run)
        assert inner.called.wait(10)
        control[0].stop = why
        return raised.result(10)


def test_a_blocking_call_is_aborted_when_its_run_is_asked_to_stop():
    permits, inner = MemoryPermitSource(), Silent()
    client = httpx2.Client(transport=UpstreamTransport(permits, SETTINGS, inner))
    error = called_and_stopped(lambda: client.post(URL, json=ASKED), inner)
    assert isinstance(error, TaskStopped)
    assert (permits.only.end.failure.reason, permits.only.end.is_in_doubt) == (Reason.CANCELLED, True)


def test_a_stream_that_is_read_by_blocking_is_aborted_too():
    permits, inner = MemoryPermitSource(), Silent(begins=True)
    client = httpx2.Client(transport=UpstreamTransport(permits, SETTINGS, inner))

    def body():
        with client.stream("POST", URL, json={**ASKED, "stream": True}) as response:
            for _ in response.iter_raw():
                pass

    assert isinstance(called_and_stopped(body, inner), TaskStopped)


def test_a_blocking_inner_transport_is_abandoned_and_its_late_response_closed():
    inner, let_go = Silent(), threading.Event()
    closed = threading.Event()

    class Late(httpx2.SyncByteStream):
        def __iter__(self):
            yield b"{}"

        def close(self):
            closed.set()

    class Blocking(httpx2.BaseTransport):
        def handle_request(self, request):
            inner.called.set()
            let_go.wait(10)
            return httpx2.Response(200, stream=Late())

    client = httpx2.Client(transport=UpstreamTransport(MemoryPermitSource(), SETTINGS, Blocking()))
    assert isinstance(called_and_stopped(lambda: client.post(URL, json=ASKED), inner), TaskStopped)
    let_go.set()
    assert closed.wait(10)


def test_a_function_whose_call_was_aborted_may_still_clean_up():
    inner = Silent()
    client = httpx2.Client(transport=UpstreamTransport(MemoryPermitSource(), SETTINGS, inner))
    other = httpx2.Client(
        transport=UpstreamTransport(MemoryPermitSource(), SETTINGS, httpx2.MockTransport(Network(ok())))
    )
    cleaned = []

    def body():
        try:
            client.post(URL, json=ASKED)
        finally:
            cleaned.append(other.post(f"{URL}/cancel").status_code)

    assert isinstance(called_and_stopped(body, inner), TaskStopped)
    assert cleaned == [200]


def test_a_call_begun_after_the_stop_request_is_aborted_at_once():
    def body():
        in_a_run().stop = StopReason.TIMEOUT
        with pytest.raises(TaskStopped):
            httpx2.Client(transport=UpstreamTransport(MemoryPermitSource(), SETTINGS, Silent())).post(
                URL, json=ASKED
            )

    with ThreadPoolExecutor(1) as threads:
        threads.submit(contextvars.Context().run, body).result(10)


# --- runs that have ended ---


@pytest.mark.anyio
@pytest.mark.parametrize("lost", [False, True], ids=["ended", "lost"])
async def test_code_left_running_by_an_ended_run_makes_no_more_calls(lost):
    network, permits = Network(ok()), MemoryPermitSource()
    control = in_a_run()
    async with client_with_transport(network, permits) as http:
        await http.post(URL, json=ASKED)
        if lost:
            control.stop = StopReason.LOST
        else:
            control.is_over = True
        with pytest.raises(TaskStopped):
            await http.post(URL, json=ASKED)
        with pytest.raises(TaskStopped):
            async with manual_call(permits, SETTINGS, Sizes()):
                pass
    assert len(network.requests) == len(permits.granted) == 1


@pytest.mark.anyio
async def test_a_call_whose_run_ends_while_it_waits_for_its_permit_is_not_sent():
    control = in_a_run()

    class Slow(MemoryPermitSource):
        async def acquire(self, request):
            permit = await super().acquire(request)
            control.is_over = True
            return permit

    network, permits = Network(ok()), Slow()
    async with client_with_transport(network, permits) as http:
        with pytest.raises(TaskStopped):
            await http.post(URL, json=ASKED)
    assert network.requests == []
    assert permits.only.steps == ["acquire", "release"]


# --- blocking clients ---


def test_any_number_of_blocking_calls_run_at_once():
    """More than the threads of an event loop's own pool, at most 32."""
    calls = 40
    together = threading.Barrier(calls)

    class Blocking(httpx.BaseTransport):
        def handle_request(self, request):
            together.wait(10)
            return httpx.Response(200, json={})

    client = httpx.Client(transport=UpstreamTransport(MemoryPermitSource(), SETTINGS, Blocking()))
    with ThreadPoolExecutor(calls) as threads:
        answers = list(threads.map(lambda _: client.post(URL, json=ASKED).status_code, range(calls)))
    assert answers == [200] * calls


@pytest.mark.anyio
async def test_a_sync_sdk_in_an_async_function_is_a_permanent_error_that_names_its_async_class():
    network = Network(ok())
    transport = UpstreamTransport(MemoryPermitSource(), SETTINGS, httpx2.MockTransport(network))
    client = openai.OpenAI(api_key="sk-own", base_url=URL, http_client=httpx2.Client(transport=transport))
    with pytest.raises(UsageError) as raised:
        client.chat.completions.create(model="m", messages=[])
    assert "AsyncOpenAI" in str(raised.value)
    assert "_sync" not in str(raised.value)
    wrapped = RuntimeError("Connection error.")  # as older SDKs do
    wrapped.__cause__ = raised.value
    for error in (raised.value, wrapped):
        failure = classify(error, now=0.0).failure
        assert (failure.verdict, failure.reason) == (Verdict.PERMANENT, Reason.INVALID_REQUEST)
        assert "AsyncOpenAI" in failure.message
    assert network.requests == []
