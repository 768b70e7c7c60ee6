"""Scripted upstreams: what SDKs get, call by call, through the transports of an application's upstreams."""

from __future__ import annotations

import time

import httpx
import httpx2
import openai
import pytest
from calls_app import (
    app,
    ask,
    ask_stream,
    claude,
    fetch,
    gpt,
    respond,
    stream,
    summarise,
    summarise_sync,
)

from tidegate import Reason, State, Tidegate, UnknownUpstreamError, UsageError
from tidegate.testing import Kit, KitError, ScriptedUpstream


def test_a_reply_has_the_format_that_each_sdk_expects() -> None:
    with Kit(app, raise_on_failure=True) as kit:
        kit.upstream("openai").replies("short", times=3)
        kit.upstream(claude).replies("brief")
        handles = [function.enqueue_sync("long") for function in (summarise, summarise_sync, respond, ask)]
        kit.drain_sync()
        assert [handle.result_sync(timeout=0) for handle in handles] == ["short", "short", "short", "brief"]


def test_a_reply_is_a_stream_if_the_call_asks_for_one() -> None:
    with Kit(app, raise_on_failure=True) as kit:
        kit.upstream(gpt).replies("one two three")
        kit.upstream(claude).replies("four five")
        handles = stream.enqueue_sync("x"), ask_stream.enqueue_sync("x")
        kit.drain_sync()
        assert handles[0].result_sync(timeout=0) == ["", "one ", "two ", "three", ""]
        assert handles[1].result_sync(timeout=0) == "four five"


def test_a_kit_inside_another_leaves_its_scripts_in_place() -> None:
    with Kit(app) as kit:
        kit.upstream(gpt).replies("short")
        with Kit(app):
            pass
        handle = summarise.enqueue_sync("long")
        assert kit.drain_sync().succeeded == 1
        assert handle.result_sync(timeout=0) == "short"


def test_a_script_of_an_upstream_that_a_test_declared_ends_with_the_test() -> None:
    own = Tidegate("sqlite:////dev/null/never-opened.db")
    with Kit(own) as kit:
        late = own.upstream("late")
        kit.upstream(late).replies("short")
        assert late.stand_in is not None
    assert late.stand_in is None
    with pytest.raises(UsageError, match="outside its `with` block"):
        kit.upstream(late)


def test_the_requests_are_recorded_with_the_task_that_made_them() -> None:
    with Kit(app) as kit:
        script = kit.upstream(gpt).replies("short")
        handle = summarise.enqueue_sync("a long text")
        kit.drain_sync()
        (request,) = script.requests
        assert (request.method, request.path, request.task_id) == ("POST", "/v1/chat/completions", handle.id)
        assert request.json["messages"][0]["content"] == "a long text"
        assert request.headers["authorization"] == "Bearer sk-test"
        assert "idempotency-key" in request.headers
        script.assert_used()


def test_a_rate_limit_parks_the_upstream_until_the_moment_that_it_names() -> None:
    with Kit(app) as kit:
        script = kit.upstream(gpt).rate_limits(retry_after=120).replies("short")
        handle = summarise.enqueue_sync("x")
        drained = kit.drain_sync()
        assert [run.reason for run in drained.failures] == [Reason.RATE_LIMIT]
        assert len(kit.advance_sync(seconds=100)) == 0
        assert kit.advance_sync(minutes=5).succeeded == 1
        assert handle.result_sync(timeout=0) == "short"
        assert handle.status_sync().attempts == 0
        assert len(script.requests) == 2


@pytest.mark.parametrize("function", [summarise, summarise_sync], ids=["async", "sync"])
def test_a_call_that_hangs_ends_at_its_time_limit_in_no_real_time(function, monkeypatch) -> None:
    with Kit(app) as kit:
        kit.upstream(gpt).hangs()
        function.enqueue_sync("x")
        before, real = kit.now(), time.monotonic()
        (run,) = kit.drain_sync(limit=5).runs
        assert (run.outcome, run.reason) == ("retrying", Reason.TIMEOUT)
        assert 59 < (kit.now() - before).total_seconds() < 70
        assert time.monotonic() - real < 5


def test_server_errors_lost_connections_and_unreachable_servers_are_classified() -> None:
    with Kit(app) as kit:
        script = kit.upstream(gpt)
        reasons = []
        for add in (script.fails, script.unreachable, script.disconnects):
            add()
            summarise.enqueue_sync("x")
            reasons += [run.reason for run in kit.drain_sync().failures]
            kit.upstream(gpt).replies("ok", times=None)
            kit.advance_sync(hours=2)
        assert reasons == [Reason.SERVER_ERROR, Reason.NETWORK, Reason.NETWORK]


def test_a_stream_that_breaks_off_is_a_failed_call() -> None:
    with Kit(app) as kit:
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunk = {**head, "choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": None}]}
        kit.upstream(gpt).streams(chunk, breaks_off=True).streams(chunk, pause=10)
        stream.enqueue_sync("x")
        assert [run.reason for run in kit.drain_sync().failures] == [Reason.NETWORK]
        assert [run.reason for run in kit.advance_sync(hours=1).failures] == [Reason.NETWORK]


def test_an_answer_may_depend_on_the_request_and_works_for_the_older_library() -> None:
    with Kit(app, raise_on_failure=True) as kit:
        kit.upstream("plain").answers(lambda request: {"asked": request.path}, times=None)
        handles = [fetch.enqueue_sync(path) for path in ("/a", "/b")]
        kit.advance_sync(seconds=10)
        assert sorted(str(handle.result_sync(timeout=0)) for handle in handles) == [
            "{'asked': '/a'}",
            "{'asked': '/b'}",
        ]


def test_a_call_after_the_end_of_the_script_fails_the_test() -> None:
    with Kit(app) as kit:
        kit.upstream(gpt).replies("one")
        summarise.enqueue_many_sync([("a",), ("b",)])
        with pytest.raises(KitError, match="expected 1 calls to openai") as failed:
            kit.drain_sync()
        assert "POST https://api.openai.com/v1/chat/completions" in str(failed.value)
        assert "→ add an answer" in str(failed.value)


def test_a_reply_without_a_format_fails_the_test_with_the_method_to_use() -> None:
    with Kit(app) as kit:
        kit.upstream("plain").replies("text")
        fetch.enqueue_sync("/embeddings")
        with pytest.raises(KitError, match=r"no format for GET https://plain\.test/embeddings"):
            kit.drain_sync()


def test_a_script_that_was_not_used_up_can_fail_the_test() -> None:
    with Kit(app) as kit:
        script = kit.upstream(gpt).replies("one", "two")
        summarise.enqueue_sync("x")
        kit.drain_sync()
        with pytest.raises(KitError, match="expected 2 calls to openai; 1 were made"):
            script.assert_used()


def test_the_transports_are_their_own_again_after_the_test() -> None:
    with Kit(app) as kit:
        kit.upstream(gpt).replies("short")
        assert gpt.stand_in is not None
    assert gpt.stand_in is None


def test_what_one_test_learned_of_an_upstream_is_forgotten_in_the_next() -> None:
    for _ in range(2):
        with Kit(app) as kit:
            script = kit.upstream(gpt).rate_limits(retry_after="1h")
            summarise.enqueue_sync("x")
            kit.drain_sync()
            assert len(script.requests) == 1
    with Kit(app) as kit:
        kit.upstream(gpt).replies("short")
        summarise.enqueue_sync("x")
        assert kit.drain_sync().succeeded == 1


async def test_a_plain_call_in_an_async_test_is_answered_too() -> None:
    async with Kit(app) as kit:
        script = kit.upstream(gpt).replies("short").hangs()
        assert await summarise("long") == "short"
        before = kit.now()
        with pytest.raises(openai.APITimeoutError):
            await summarise("long")
        assert (kit.now() - before).total_seconds() > 59
        assert [request.task_id for request in script.requests] == [None, None]


async def test_a_client_without_an_upstream_uses_the_transport_of_a_script() -> None:
    script = ScriptedUpstream().answers({"n": 1}).answers({"n": 2}, status=201)
    async with httpx2.AsyncClient(transport=script.transport()) as client:
        assert (await client.get("https://any.test/")).json() == {"n": 1}
    with httpx.Client(transport=script.transport(httpx)) as old:
        response = old.post("https://any.test/", json={"a": 1})
    assert (response.status_code, response.json(), script.requests[1].json) == (201, {"n": 2}, {"a": 1})


def test_an_upstream_that_is_not_declared_is_refused_with_those_that_are() -> None:
    with Kit(app) as kit, pytest.raises(UnknownUpstreamError, match="anthropic, openai, plain"):
        kit.upstream("openia")


def test_an_answer_without_content_is_refused() -> None:
    with pytest.raises(UsageError, match="missing"):
        ScriptedUpstream().replies()


def test_limits_of_the_upstream_hold_on_the_test_clock() -> None:
    with Kit(app) as kit:
        script = kit.upstream("plain").answers({}, times=None)
        handles = [fetch.enqueue_sync(f"/{number}") for number in range(200)]
        kit.drain_sync()
        first = len(script.requests)
        kit.advance_sync(minutes=10)
        assert first < len(script.requests) == 200
        assert all(handle.status_sync().state is State.SUCCEEDED for handle in handles[:3])
