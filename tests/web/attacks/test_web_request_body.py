"""What is wrong with a body is named, and long bodies are checked off the event loop."""

from __future__ import annotations

import asyncio
import gzip
import secrets
import threading
from typing import Any

import httpx2
import pytest
from web_support import direct

from tidegate import Tidegate

pytestmark = pytest.mark.anyio

TASKS = "/api/v1/tasks"


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b'{"task":"web:echo","args":{"value":"\\ud83d"}}', "half of a surrogate pair"),
        (b'{"task":"web:echo","args":{"value":"\\ud83d and on"}}', "half of a surrogate pair"),
        (b'{"task":"web:echo","args":{"value":"\\udE00 x"}}', "half of a surrogate pair"),
        (b'{"task":"web:echo","args":{"value":"\xed\xa0\xbd"}}', "not UTF-8 at byte 36"),
        (b'{"task":"web:echo","args":{"value":"\xff"}}', "not UTF-8 at byte 36"),
        (gzip.compress(b'{"task":"web:echo"}', mtime=0), "compressed with gzip"),
        ('{"task":"web:echo"}'.encode("utf-16"), "UTF-16"),
        ('{"task":"web:echo"}'.encode("utf-16-le"), "UTF-16"),
        (b'\xef\xbb\xbf{"task":"web:echo"}', "byte order mark"),
        (b"", "is empty"),
        (b'{"task":"web:add","task":"web:echo"}', "member 'task' twice"),
        (b'{"task":"web:echo","args":{"value":{"a":1,"\\u0061":2}}}', "member 'a' twice"),
    ],
)
async def test_the_refusal_of_a_body_names_its_cause(
    shared_client: httpx2.AsyncClient, body: bytes, cause: str
) -> None:
    answer = await shared_client.post(TASKS, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert cause in answer.json()["detail"]


@pytest.mark.parametrize(
    "text",
    ["\\ud83d\\ude00", "\\\\ud83d", "\\\\\\\\ud83d", "C:\\\\users\\\\ud83d", "\\uD83D\\uDE00\\ud83d\\ude00"],
)
async def test_whole_pairs_and_escaped_backslashes_are_no_half_pairs(
    shared_client: httpx2.AsyncClient, text: str
) -> None:
    body = f'{{"task":"web:echo","args":{{"value":"{text}"}}}}'
    answer = await shared_client.post(TASKS, content=body.encode())
    assert answer.status_code == 202, answer.text


async def test_a_compressed_body_is_refused_with_the_fix(app: Tidegate) -> None:
    async with direct(app) as client:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        answer = await client.post(TASKS, content=gzip.compress(b"{}"), headers=headers)
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")
    assert "gzip" in answer.json()["detail"]


async def test_a_batch_with_a_member_twice_is_refused_whole(app: Tidegate) -> None:
    async with direct(app) as client:
        for body in (
            '{"tasks":[{"task":"web:add","args":[1]}],"tasks":[]}',
            '{"tasks":[{"task":"web:add","args":[1]},{"task":"web:add","args":{"a":1,"a":2}}]}',
        ):
            answer = await client.post(f"{TASKS}/batch", content=body.encode())
            assert (answer.status_code, "twice" in answer.json()["detail"]) == (400, True)


async def test_more_values_than_the_limit_are_refused_before_they_are_parsed(app: Tidegate) -> None:
    async with direct(app) as client:
        lists = b'{"task":"web:echo","args":{"value":[' + b"[]," * 300_000 + b"[]]}}"
        refused = await client.post(TASKS, content=lists)
        assert (refused.status_code, refused.json()["limit"]) == (413, 150_000)
        tokens = {"task": "web:echo", "args": {"value": [7] * 128_000}}
        assert (await client.post(TASKS, json=tokens)).status_code == 202
        prose = {"task": "web:echo", "args": {"value": "a, [b], {c}, " * 60_000}}
        assert (await client.post(TASKS, json=prose)).status_code == 202


async def test_a_long_body_is_checked_off_the_event_loop_and_a_short_one_on_it(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    function = app.function("web:echo")
    real = function.signature.load

    def load(payload: bytes) -> Any:
        threads.append(threading.current_thread())
        return real(payload)

    monkeypatch.setattr(function.signature, "load", load)
    async with direct(app) as client:
        for value in ("short", "long" * 10_000):
            asked = {"task": "web:echo", "args": {"value": value}}
            assert (await client.post(TASKS, json=asked)).status_code == 202
            assert (await client.post(f"{TASKS}/batch", json={"tasks": [asked]})).status_code == 202
    assert [one is threading.main_thread() for one in threads] == [True, True, False, False]


async def test_another_request_is_answered_while_a_long_body_is_checked(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, checking, may_end = app.function("web:echo"), asyncio.Event(), threading.Event()
    real, loop = function.signature.load, asyncio.get_running_loop()

    def load(payload: bytes) -> Any:
        loop.call_soon_threadsafe(checking.set)
        assert may_end.wait(10)
        return real(payload)

    monkeypatch.setattr(function.signature, "load", load)
    async with direct(app) as client, asyncio.timeout(20):
        asked = {"task": "web:echo", "args": {"value": "long" * 10_000}}
        submitting = asyncio.create_task(client.post(TASKS, json=asked))
        await checking.wait()
        assert (await client.get("/livez")).status_code == 200
        may_end.set()
        assert (await submitting).status_code == 202


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ('{"value":{"x":1,"y":2}}', '{"value":{"y":2,"x":1}}', 202),
        ('{"value":1}', '{"value":1.0}', 422),
        ('{"value":0.0}', '{"value":-0.0}', 422),
        ('{"value":"\\u0061"}', '{"value":"a"}', 202),
    ],
)
async def test_which_arguments_are_the_same_for_a_key(
    shared_client: httpx2.AsyncClient, first: str, second: str, status: int
) -> None:
    key = secrets.token_hex(8)
    bodies = [f'{{"task":"web:echo","key":"{key}","args":{args}}}'.encode() for args in (first, second)]
    answers = [await shared_client.post(TASKS, content=body) for body in bodies]
    assert [answer.status_code for answer in answers] == [202, status]
