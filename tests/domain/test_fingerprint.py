"""Failures of one cause get one fingerprint; others get another."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.fingerprint import SHAPE_LIMIT, fingerprint_of, normalised, own_frame

TRACEBACK = """Traceback (most recent call last):
  File "/srv/{release}/jobs/summaries.py", line {line}, in summarize
    return parse(answer)
  File "/srv/{release}/jobs/parsing.py", line 3, in parse
    return json.loads(answer)
  File "/usr/lib/python3.12/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
ValueError: no JSON
"""


def failure(message: str = "", **other: object) -> Failure:
    return Failure(Verdict.PERMANENT, Reason.REJECTED, message, **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        ("document 4711 has 12,345.6 words", "document <number> has <number> words"),
        ("took 1.5e-3 s, offset -17", "took <number> s, offset <number>"),
        ("retry after 20s", "retry after <number>s"),
        ("user 0196f3a2-7c11-7abc-8def-0123456789ab is gone", "user <id> is gone"),
        ("<Doc object at 0x7f3a9c0d1e50>", "<Doc object at <hex>>"),
        ("commit deadbeef00 of 9f86d081884c7d659a2feaa0c55ad015", "commit <hex> of <hex>"),
        ("no answer from https://api.example.com/v1/chat?key=3#x today", "no answer from <url> today"),
        ("no column 'total of 2024' in \"orders\"", "no column <text> in <text>"),
        ("no file /var/data/in/17.pdf", "no file <path>"),
        ("request req_011CQ9zKq4 failed", "request <id> failed"),
        ("chatcmpl-9xYz12AbCdEf was cut", "<id> was cut"),
        ("expired at 2026-11-30T14:05:06.123Z", "expired at <time>"),
        ("mail to anna@example.com bounced", "mail to <email> bounced"),
        ("one line\n  and\tanother", "one line and another"),
        ("accelerated beef facade", "accelerated beef facade"),
        ("model gpt-4o-mini is overloaded", "model gpt-<number>o-mini is overloaded"),
        ("it's done and it's late", "it<text>s late"),
        ("", ""),
    ],
)
def test_a_message_loses_what_differs_between_tasks(message: str, shape: str) -> None:
    assert normalised(message) == shape


def test_failures_that_differ_in_their_details_have_one_fingerprint() -> None:
    one = failure(
        "page 3 of 'a.pdf' is empty",
        error_class="app.EmptyPage",
        traceback=TRACEBACK.format(release="r1", line=7),
    )
    other = failure(
        "page 12 of 'b.pdf' is empty",
        error_class="app.EmptyPage",
        traceback=TRACEBACK.format(release="r2", line=93),
    )
    assert fingerprint_of(one) == fingerprint_of(other)


@pytest.mark.parametrize(
    "other",
    [
        failure("page 3 is full", error_class="app.EmptyPage"),
        failure("page 3 is empty", error_class="app.NoPage"),
        failure(
            "page 3 is empty", error_class="app.EmptyPage", traceback=TRACEBACK.format(release="r", line=1)
        ),
    ],
)
def test_another_class_message_or_frame_is_another_fingerprint(other: Failure) -> None:
    one = failure("page 3 is empty", error_class="app.EmptyPage")
    assert fingerprint_of(one).id != fingerprint_of(other).id


def test_a_crash_and_a_passed_deadline_differ_although_neither_has_an_exception() -> None:
    crash, deadline = (
        fingerprint_of(Failure(Verdict.PERMANENT, reason)) for reason in (Reason.CRASH, Reason.DEADLINE)
    )
    assert crash.id != deadline.id
    assert crash.error_class == deadline.error_class == ""


def test_the_own_frame_is_the_innermost_one_outside_of_libraries() -> None:
    assert own_frame(TRACEBACK.format(release="r", line=1)) == "jobs/parsing.py:parse"
    assert own_frame(TRACEBACK.replace("/srv/{release}", "/usr/lib/python3/dist-packages")) == ""
    assert own_frame("") == ""


def test_the_own_frame_is_of_the_exception_that_was_raised_last() -> None:
    cause = TRACEBACK.format(release="r", line=1)
    raised = (
        'Traceback (most recent call last):\n  File "/srv/r/app.py", line 2, in main\n    f()\nKeyError: 3\n'
    )
    assert own_frame(f"{cause}\nDuring handling of the above exception …\n\n{raised}") == "r/app.py:main"


@given(st.text(max_size=400))
def test_any_message_has_a_short_shape_of_one_line(message: str) -> None:
    shape = normalised(message)
    assert len(shape) <= SHAPE_LIMIT
    assert len(shape.splitlines()) <= 1


@given(st.integers(min_value=0), st.integers(min_value=0))
def test_numbers_never_make_two_shapes(one: int, other: int) -> None:
    assert normalised(f"item {one} is bad") == normalised(f"item {other} is bad")


@pytest.mark.parametrize("text", ["a" * 4_000, "/a" * 2_000, "a-" * 2_000, "a." * 2_000 + "@", "1." * 2_000])
def test_no_message_takes_long(text: str) -> None:
    began = time.process_time()
    normalised(text)
    assert time.process_time() - began < 0.2
