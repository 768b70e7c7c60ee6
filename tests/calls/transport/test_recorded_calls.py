"""Recorded calls: a re-run gets the response that an earlier run received, and sends nothing."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from typing import Any

import httpx
import httpx2
import pytest
from permits_in_memory import MemoryPermitSource
from transport_clients import ASKED, URL, Network, Pieces, begin_run, ok, recording_client, stream_of

from step_support import StepStore, answered
from tidegate import Pending, Tidegate
from tidegate.calls.settings import CallSettings, Recording
from tidegate.calls.transport import recorded_call
from tidegate.calls.transport.transport import UpstreamTransport
from tidegate.context import TaskStopped, current_context
from tidegate.domain.step import OnDoubt, StepState
from tidegate.errors import OptionError, StepInDoubtError, StepRejectedError
from tidegate.options import read_options
from tidegate.store.step_rows import (
    BeginStatus,
    BegunStep,
    EndStatus,
    StepBegin,
)

pytestmark = pytest.mark.anyio

SSE = (
    b'data: {"choices": [{"delta": {"content": "the tide"}}]}\n\n',
    b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n',
    b"data: [DONE]\n\n",
)


@pytest.fixture
def store() -> StepStore:
    return StepStore()


@pytest.fixture(autouse=True)
def warned(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    fresh: set[Any] = set()
    monkeypatch.setattr(recorded_call, "_warned", fresh)
    return fresh


async def sample() -> None: ...


async def ask(http: httpx2.AsyncClient, content: str = "hello", **options: Any) -> Any:
    return await http.post(URL, json={**ASKED, "input": content}, **options)


async def test_a_rerun_gets_the_kept_response_without_a_permit_a_request_or_a_call(store: StepStore) -> None:
    network, permits = Network(ok(answer="one")), MemoryPermitSource()
    begin_run(store, 1)
    async with recording_client(network, permits) as http:
        first = await ask(http)
    control = begin_run(store, 2)
    async with recording_client(network, permits) as http:
        again = await ask(http)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["content-type"] == "application/json"
    assert again.headers["x-tidegate-replayed"] == "true"
    assert len(network.requests) == len(permits.granted) == len(store.begins) == 1
    summary = control.calls.summary("acme")
    assert (summary.count, summary.replayed, summary.are_unknown) == (0, 1, False)


async def test_the_intent_is_recorded_after_the_permit_and_before_the_request(store: StepStore) -> None:
    permits, seen = MemoryPermitSource(), []

    def answer(request: Any) -> Any:
        seen.append((store.states, permits.only.steps.copy()))
        return ok()

    begin_run(store, 1)
    async with recording_client(answer, permits) as http:
        await ask(http)
    assert seen == [([StepState.OPEN], ["acquire", "sending"])]
    [begin] = store.begins
    assert (begin.name, begin.upstream, begin.on_doubt) == ("call acme", "acme", OnDoubt.REPEAT)


async def test_equal_calls_are_kept_apart_and_come_back_in_their_order(store: StepStore) -> None:
    network = Network(ok(answer="one"), ok(answer="two"), ok(answer="three"))
    begin_run(store, 1)
    async with recording_client(network) as http:
        first = [(await ask(http)).json()["answer"] for _ in range(2)]
    begin_run(store, 2)
    async with recording_client(network) as http:
        again = [(await ask(http)).json()["answer"] for _ in range(3)]
    assert first == ["one", "two"]
    assert again == ["one", "two", "three"]
    assert len(network.requests) == 3


async def test_a_failed_call_that_the_function_repeats_in_its_run_is_paid_once(store: StepStore) -> None:
    network = Network(httpx2.Response(500), ok(answer="second try"))
    begin_run(store, 1)
    async with recording_client(network) as http:
        assert (await ask(http)).status_code == 500
        assert (await ask(http)).status_code == 200
    keys = [request.headers["idempotency-key"] for request in network.requests]
    assert keys[0] == keys[1]
    begin_run(store, 2)
    async with recording_client(network) as http:
        assert (await ask(http)).json()["answer"] == "second try"
    assert len(network.requests) == 2


@pytest.mark.parametrize("status", [302, 400, 401, 404, 429, 500, 503])
async def test_a_response_that_is_no_success_is_never_replayed(store: StepStore, status: int) -> None:
    network = Network(*[httpx2.Response(status, stream=Pieces()) for _ in range(2)])
    for run in (1, 2):
        begin_run(store, run)
        async with recording_client(network) as http:
            assert (await ask(http)).status_code == status
    assert len(network.requests) == 2
    assert store.states == [StepState.FAILED]


@pytest.mark.parametrize(
    ("error", "state", "status"),
    [
        (httpx2.ReadTimeout("slow"), StepState.OPEN, EndStatus.IN_DOUBT),
        (httpx2.RemoteProtocolError("gone"), StepState.OPEN, EndStatus.IN_DOUBT),
        (httpx2.ConnectError("refused"), StepState.FAILED, EndStatus.FAILED),
        (httpx2.PoolTimeout("full"), StepState.FAILED, EndStatus.FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_a_call_without_an_answer_is_in_doubt_if_it_was_sent(
    store: StepStore, error: Exception, state: StepState, status: EndStatus
) -> None:
    begin_run(store, 1)
    async with recording_client(Network(error)) as http:
        with pytest.raises(type(error)):
            await ask(http)
    assert store.states == [state]
    assert [end.status for end in store.ends] == [status]


async def test_a_call_in_doubt_that_asks_is_not_repeated(store: StepStore) -> None:
    network, permits = Network(httpx2.ReadTimeout("slow"), ok()), MemoryPermitSource()
    begin_run(store, 1)
    async with recording_client(network, permits, on_doubt=OnDoubt.ASK) as http:
        with pytest.raises(httpx2.ReadTimeout):
            await ask(http)
        with pytest.raises(StepInDoubtError):
            await ask(http)
    begin_run(store, 2)
    async with recording_client(network, permits, on_doubt=OnDoubt.ASK) as http:
        with pytest.raises(StepInDoubtError):
            await ask(http)
    assert len(network.requests) == 1
    assert [permit.steps[-1] for permit in permits.granted] == ["settle", "release", "release"]


async def test_a_call_that_a_person_rejected_or_answered_is_not_sent(store: StepStore) -> None:
    network = Network(httpx2.ReadTimeout("slow"))
    begin_run(store, 1)
    async with recording_client(network) as http:
        with pytest.raises(httpx2.ReadTimeout):
            await ask(http)
    [row] = store.rows.values()
    row["state"] = StepState.REJECTED
    begin_run(store, 2)
    async with recording_client(network) as http:
        with pytest.raises(StepRejectedError):
            await ask(http)
    row.update(state=StepState.DONE, data=b'{"answer":"given"}', codec="json/1")
    begin_run(store, 3)
    async with recording_client(network) as http:
        assert (await ask(http)).json() == {"answer": "given"}
    assert len(network.requests) == 1


async def test_a_run_that_is_not_the_current_one_sends_nothing(store: StepStore) -> None:
    network, permits = Network(ok()), MemoryPermitSource()
    store.begin = lambda begin: answered(BegunStep(BeginStatus.FENCED))  # type: ignore[method-assign]
    begin_run(store, 1)
    async with recording_client(network, permits) as http:
        with pytest.raises(TaskStopped):
            await ask(http)
    assert network.requests == []
    assert permits.only.steps == ["acquire", "release"]


async def test_a_late_response_gives_way_to_that_of_another_run(store: StepStore) -> None:
    begin_run(store, 1)

    def answer(request: Any) -> Any:
        [row] = store.rows.values()
        if row["state"] is StepState.OPEN:
            row.update(
                state=StepState.DONE, data=b'{"status":200,"headers":[]}\nfrom the other run', codec="http/1"
            )
        return ok(answer="late")

    async with recording_client(answer) as http:
        assert (await ask(http)).content == b"from the other run"


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
async def test_a_stream_is_passed_on_at_once_and_replayed_with_the_same_bytes(
    store: StepStore, library: Any
) -> None:
    requests, released = [], asyncio.Event()

    class Waiting(library.AsyncByteStream):  # type: ignore[misc, name-defined]
        async def __aiter__(self) -> Any:
            yield SSE[0]
            await released.wait()
            for piece in SSE[1:]:
                yield piece

    def answer(request: Any) -> Any:
        requests.append(request)
        return library.Response(200, headers={"content-type": "text/event-stream"}, stream=Waiting())

    async def read(run: int) -> list[bytes]:
        begin_run(store, run)
        settings = CallSettings("acme", recording=Recording())
        transport = UpstreamTransport(MemoryPermitSource(), settings, library.MockTransport(answer))
        async with (
            library.AsyncClient(transport=transport) as http,
            http.stream("POST", URL, json={**ASKED, "stream": True}) as response,
        ):
            pieces = []
            async for piece in response.aiter_raw():
                pieces.append(piece)
                released.set()
            return pieces

    assert await read(1) == list(SSE)
    assert b"".join(await read(2)) == b"".join(SSE)
    assert len(requests) == 1


async def test_a_stream_that_is_closed_after_the_end_of_its_protocol_is_kept(store: StepStore) -> None:
    network = Network(stream_of(*SSE, b": one more comment\n\n"))
    for run in (1, 2):
        begin_run(store, run)
        async with (
            recording_client(network) as http,
            http.stream("POST", URL, json={**ASKED, "stream": True}) as response,
        ):
            async for line in response.aiter_lines():
                if "[DONE]" in line:
                    break
    assert len(network.requests) == 1


async def test_a_stream_that_is_closed_early_or_breaks_off_is_in_doubt(store: StepStore) -> None:
    network = Network(stream_of(*SSE), stream_of(SSE[0]))
    begin_run(store, 1)
    async with recording_client(network) as http:
        async with http.stream("POST", URL, json={**ASKED, "stream": True}) as response:
            async for _ in response.aiter_raw():
                break
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.post(URL, json={**ASKED, "stream": True})
    assert store.states == [StepState.OPEN]
    assert [end.status for end in store.ends] == [EndStatus.IN_DOUBT] * 2
    assert store.ends[0].cause == "its stream was closed before its end"


async def test_a_stream_that_the_function_leaves_open_does_not_hold_up_its_run(store: StepStore) -> None:
    network = Network(stream_of(*SSE))
    control = begin_run(store, 1)
    now = 100.0
    control.clock = lambda: now
    async with recording_client(network) as http:
        async with http.stream("POST", URL, json={**ASKED, "stream": True}) as response:
            pieces = response.aiter_raw()
            await anext(pieces)
            assert control.steps is not None
            assert control.steps.waits.steps() == (1, 1)
            now += 60.0
            assert control.steps.waits.steps() == (0, 1)
            await anext(pieces)
            assert control.steps.waits.steps() == (1, 1), "the function reads on"
        assert control.steps.waits.steps() == (0, 1)


async def test_a_stream_that_is_cut_off_reports_the_tokens_that_it_has_stated(store: StepStore) -> None:
    begun = (
        b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 25,'
        b' "output_tokens": 1}}}\n\n'
    )
    network = Network(stream_of(begun, *SSE), stream_of(begun))
    begin_run(store, 1)
    async with recording_client(network) as http:
        async with http.stream("POST", URL, json={**ASKED, "stream": True}) as response:
            async for _ in response.aiter_raw():
                break
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.post(URL, json={**ASKED, "stream": True})
    assert [(end.status, end.input_tokens, end.output_tokens) for end in store.ends] == [
        (EndStatus.IN_DOUBT, 25, 1)
    ] * 2


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_response_above_the_size_is_passed_on_and_not_kept(
    store: StepStore, is_stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    text = "x" * 5_000

    def answer(_: Any) -> Any:
        return stream_of(*SSE[:1], text.encode(), *SSE[1:]) if is_stream else ok(answer=text)

    sizes = []
    for run in (1, 2):
        begin_run(store, run)
        async with recording_client(answer, max_bytes=4_000) as http:
            sizes += [len((await ask(http)).content) for _ in range(2)]
    assert min(sizes) > 5_000
    assert store.states == [StepState.FAILED] * 2
    assert all("record_max_bytes" in end.cause for end in store.ends)
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "is larger than record_max_bytes (4000), and is not recorded" in warning


async def test_a_response_that_is_too_large_to_be_read_with_the_others_is_replayed(store: StepStore) -> None:
    network, permits = Network(ok(answer="x" * 70_000)), MemoryPermitSource()
    for run in (1, 2):
        begin_run(store, run)
        async with recording_client(network, permits) as http:
            assert len((await ask(http)).json()["answer"]) == 70_000
    assert len(network.requests) == len(permits.granted) == 1


async def test_reads_and_uploads_and_calls_outside_tasks_are_not_recorded(
    store: StepStore, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network(ok())
    async with recording_client(network) as http:
        await ask(http)
    begin_run(store, 1)
    async with recording_client(network) as http:
        await http.get(URL)
        await http.post(URL, content=Pieces(b"one"))
        await http.post(URL, files={"file": ("talk.mp3", b"two")})
    assert (len(network.requests), store.begins) == (4, [])
    [warning] = [record.getMessage() for record in caplog.records]
    assert "a call is not recorded, because its body is an upload that can be read once" in warning


async def test_no_secret_of_the_request_and_no_other_header_is_kept(store: StepStore) -> None:
    headers = {"set-cookie": "canary-3", "x-ratelimit-remaining-requests": "7", "x-request-id": "req_1"}
    network = Network(httpx2.Response(200, json={"answer": 1}, headers=headers))
    for run in (1, 2):
        begin_run(store, run)
        async with recording_client(network) as http:
            answer = await ask(http, headers={"authorization": "Bearer canary-1", "x-own": "canary-2"})
    assert answer.headers["x-request-id"] == "req_1"
    assert "x-ratelimit-remaining-requests" not in answer.headers
    assert "canary" not in repr((store.rows, store.begins, store.ends))


async def test_a_refused_permit_leaves_no_step_and_the_number_of_the_call(store: StepStore) -> None:
    network, permits = Network(ok()), MemoryPermitSource()
    permits.refusal = StepRejectedError("refused", fix="wait")
    begin_run(store, 1)
    async with recording_client(network, permits) as http:
        with pytest.raises(StepRejectedError):
            await ask(http)
        assert store.begins == []
        permits.refusal = None
        await ask(http)
    begin_run(store, 2)
    async with recording_client(network, permits) as http:
        await ask(http)
    assert len(network.requests) == 1


async def test_a_compressed_response_is_replayed_as_it_came(store: StepStore) -> None:
    import gzip

    body = gzip.compress(b'{"answer": "packed"}')
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    network = Network(httpx2.Response(200, headers=headers, stream=Pieces(body)))
    for run in (1, 2):
        begin_run(store, run)
        async with recording_client(network) as http:
            assert (await ask(http)).json() == {"answer": "packed"}
    assert len(network.requests) == 1


async def test_a_cancelled_call_is_in_doubt_if_it_was_sent(store: StepStore) -> None:
    is_sent = asyncio.Event()

    async def hang(_: Any) -> Any:
        is_sent.set()
        await asyncio.sleep(60)

    begin_run(store, 1)
    async with recording_client(hang) as http:
        calling = asyncio.ensure_future(ask(http))
        await is_sent.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert [end.status for end in store.ends] == [EndStatus.IN_DOUBT]


async def test_a_call_that_is_cancelled_while_its_intent_is_written_is_not_in_doubt(store: StepStore) -> None:
    begun: Future[BegunStep] = Future()
    begin = store.begin
    is_asked = asyncio.Event()

    def slowly(request: StepBegin) -> Future[BegunStep]:
        begin(request)
        is_asked.set()
        return begun

    store.begin = slowly  # type: ignore[method-assign]
    network = Network(ok())
    begin_run(store, 1)
    async with recording_client(network) as http:
        calling = asyncio.ensure_future(ask(http))
        await is_asked.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert network.requests == []
    assert [end.status for end in store.ends] == [EndStatus.FAILED]


# --- whose word counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upstream", "function", "task", "is_recorded"),
    [
        (False, None, None, False),
        (True, None, None, True),
        (False, True, None, True),
        (True, False, None, False),
        (True, True, False, False),
        (False, False, True, True),
    ],
)
async def test_the_task_decides_before_its_function_and_that_before_the_upstream(
    upstream: bool, function: bool | None, task: bool | None, is_recorded: bool, store: StepStore
) -> None:
    network = Network(ok())
    labels = {} if task is None else read_options({"record_calls": task})["labels"]
    for run in (1, 2):
        begin_run(store, run, labels=labels).records_calls = function
        async with recording_client(network, is_on=upstream) as http:
            await ask(http)
    assert len(network.requests) == (1 if is_recorded else 2)
    assert len(store.begins) == (1 if is_recorded else 0)


@pytest.mark.parametrize("says", [True, False])
async def test_a_transport_that_was_made_to_record_or_not_decides_before_the_function(
    says: bool, store: StepStore
) -> None:
    network = Network(ok())
    for run in (1, 2):
        begin_run(store, run).records_calls = not says
        async with recording_client(network, is_on=says, is_final=True) as http:
            await ask(http)
    assert len(network.requests) == (1 if says else 2)


def test_the_option_is_checked_where_it_is_given() -> None:
    app = Tidegate("sqlite:///unused.db")

    with pytest.raises(OptionError, match="record_calls"):
        app.task(record_calls="yes")(sample)  # type: ignore[call-overload]
    function = app.task(record_calls=True)(sample)
    assert function.spec.record_calls is True
    with pytest.raises(OptionError, match="record_calls"):
        function.using(record_calls="no")  # type: ignore[typeddict-item]


async def test_the_calls_of_a_poll_are_not_recorded(store: StepStore) -> None:
    """A later poll must not get the answer of an earlier one. The calls of `submit` are recorded."""
    answers: list[Any] = []
    begin_run(store, 1)
    context = current_context()
    assert context is not None
    async with recording_client(Network(*[ok()] * 3), MemoryPermitSource()) as http:

        async def submit() -> str:
            await ask(http, "submit")
            return "job_1"

        async def poll(job_id: str) -> Pending | str:
            answers.append(await ask(http, "poll"))
            return Pending() if len(answers) == 1 else "done"

        assert await context.remote("job", submit, poll, every=0.01) == "done"
    assert len(answers) == 2
    assert [begin.name for begin in store.begins] == ["job", "call acme"]
