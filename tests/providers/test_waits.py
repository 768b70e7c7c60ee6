import math
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stand_ins import NOW, cases, header_list, wait_complaint
from tidegate.providers.waits import LONGEST_WAIT_SECONDS, clamp_wait, server_wait

OCTOBER = 1_792_567_620.0
"""2026-10-21T07:27:00Z"""


@pytest.mark.parametrize("case", cases("header"), ids=lambda case: case["id"])
def test_every_header_case_gives_the_wait_the_server_asked_for(case):
    wait = server_wait(header_list(case), now=NOW, body=case["body"])
    if case["expect"]["verdict"] == "permanent":
        # The wait is read all the same; that a permanent verdict drops it is the classifier's part.
        assert wait == float(case["headers"]["Retry-After"])
    else:
        assert wait_complaint(case["expect"], wait) == ""


def test_there_are_as_many_header_cases_as_expected():
    assert len(cases("header")) == 75


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("120", 120.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 60.0),
        ("Wed, 21 Oct 2026 07:26:00 GMT", 0.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("soon", None),
        ("٣", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("86400", 86_400.0),
    ],
)
@pytest.mark.parametrize("name", ["Retry-After", "retry-after"])
def test_retry_after_is_read_in_all_its_forms(name, value, wait):
    assert server_wait({name: value}, now=OCTOBER) == wait


def test_milliseconds_take_precedence_over_seconds():
    assert server_wait({"retry-after-ms": "2500"}, now=OCTOBER) == 2.5
    assert server_wait({"Retry-After": "9", "x-amz-retry-after": "1500"}, now=OCTOBER) == 1.5


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 30 Feb 2026 12:00:00 GMT",
        "Mon, 02 Xyz 2026 12:00:00 GMT",
        "Mon, 02 Nov 2026 25:00:00 GMT",
        "Mon, 02 Nov 2026 12:00:00 +9900",
        "2026-13-02T12:00:00Z",
        "9" * 400,
        "9" * 100_000,
        "\x00",
        "5;q=1",
        "+5",
    ],
)
def test_a_value_that_is_not_a_time_is_ignored(value):
    assert server_wait({"Retry-After": value}, now=NOW) is None


def test_a_year_of_two_digits_is_never_more_than_fifty_years_ahead():
    assert server_wait({"Retry-After": "Monday, 02-Nov-26 12:01:00 GMT"}, now=NOW) == 60.0
    assert server_wait({"Retry-After": "Monday, 02-Nov-80 12:01:00 GMT"}, now=NOW) == 0.0


def test_dates_are_compared_with_the_sending_servers_clock():
    date = {"Date": "Mon, 02 Nov 2026 11:59:15 GMT"}
    assert server_wait({"Retry-After": "Mon, 02 Nov 2026 12:00:45 GMT", **date}, now=NOW) == 90.0
    reset = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1793620830", **date}
    assert server_wait(reset, now=NOW) == 75.0
    assert server_wait({"Retry-After": "7", "Date": "yesterday"}, now=NOW) == 7.0


@pytest.mark.parametrize(
    ("body", "wait"),
    [
        ({"retry_after": 5}, 5.0),
        ({"error": {"retry_after_ms": 1500}}, 1.5),
        ('{"error": {"retryAfter": "2.5"}}', 2.5),
        ([{"error": {"details": [{"retryDelay": "34.5s"}]}}], 34.5),
        ({"error": {"metadata": {"headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9"}}}}, 9.0),
        ({"estimated_time": 20.5}, 20.5),
        ({"error": {"message": "Slow down. Please try again in 7m12s."}}, 432.0),
        ({"error": {"message": "Please retry after 37 seconds."}}, 37.0),
        ({"message": "Try again in 1 minute 30 seconds"}, 90.0),
        ({"error": "Please try again in 250ms"}, 0.25),
        ({"message": "Try again in 5 sheep"}, None),
        ({"retry_after": True}, None),
        ({"retry_after": -1}, None),
        ({"retry_after": math.inf}, None),
        ({"retry_after": {"seconds": []}}, None),
        ('{"retry_after": ', None),
        ("[" * 100_000, None),
        (b'{"retry_after": 4}', 4.0),
        (object(), None),
    ],
)
def test_the_body_may_name_the_wait(body, wait):
    assert server_wait({}, now=NOW, body=body) == wait


def test_a_header_takes_precedence_over_the_body_and_the_body_over_a_reset():
    resets = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}
    assert server_wait({"Retry-After": "3", **resets}, now=NOW, body={"retry_after": 5}) == 3.0
    assert server_wait(resets, now=NOW, body={"retry_after": 5}) == 5.0
    assert server_wait(resets, now=NOW) == 360.0


def test_a_limit_with_something_left_does_not_count():
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "2s",
        "x-ratelimit-remaining-tokens": "-1",
        "x-ratelimit-reset-tokens": "1h",
    }
    assert server_wait(headers, now=NOW) == 2.0


def test_a_malformed_ratelimit_field_is_ignored_as_a_whole():
    assert server_wait({"RateLimit": '"a";r=0;t=30'}, now=NOW) == 30.0
    assert server_wait({"RateLimit": '"a";r=0;t=30, "b";r=0;t=55;pk=:abc='}, now=NOW) == 55.0
    assert server_wait({"RateLimit": '"a";r=0;t=30, b r=1'}, now=NOW) is None


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ([("Retry-After", "5"), ("RETRY-AFTER", "10")], 10.0),
        ({"Retry-After": ["5", "soon", "10"]}, 10.0),
        ([(b"Retry-After", b"5")], 5.0),
        ({"Retry-After": 30}, 30.0),
        ({"Retry-After": 2.5}, 2.5),
        ({"Retry-After": None}, None),
        ([("Retry-After", "5"), "not a pair", ("Retry-After", "10")], 5.0),
        (None, None),
        (7, None),
        ("Retry-After: 5", None),
        (repeat(("a", "b")), None),
    ],
)
def test_headers_may_have_any_form(headers, wait):
    assert server_wait(headers, now=NOW) == wait


def test_the_body_is_read_if_the_headers_raise():
    class Broken(dict):
        def items(self):
            raise RuntimeError("gone")

    assert server_wait(Broken(), now=NOW, body={"retry_after": 5}) == 5.0
    assert server_wait({"Retry-After": "5"}, now=math.nan) == 5.0


@pytest.mark.parametrize(
    ("seconds", "clamped"),
    [(-1.0, 0.0), (0.0, 0.0), (5.0, 5.0), (1e9, LONGEST_WAIT_SECONDS), (math.inf, 86_400.0), (math.nan, 0.0)],
)
def test_a_wait_is_cut_to_a_day(seconds, clamped):
    assert clamp_wait(seconds) == clamped


NAMES = st.sampled_from(
    [
        "Retry-After",
        "retry-after-ms",
        "x-ms-retry-after-ms",
        "Date",
        "RateLimit",
        "RateLimit-Remaining",
        "RateLimit-Reset",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ]
)
PIECES = st.sampled_from(
    [
        "0",
        "-1",
        "12",
        "1.5",
        "1e9",
        "9999999999999",
        "s",
        "ms",
        "m",
        "h",
        ",",
        ";",
        ":",
        "=",
        '"',
        "r",
        "t",
        "GMT",
        "Nov",
        "Mon",
        "2026",
        "-",
        "+",
        "T",
        "Z",
        "_",
        "٣",
        "\x00",
    ]
)
VALUES = st.one_of(
    st.text(), st.lists(PIECES).map("".join), st.binary(), st.integers(), st.floats(), st.none()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "details",
                    "metadata",
                    "headers",
                    "message",
                    "retry_after",
                    "retryDelay",
                    "retry_after_ms",
                ]
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None, database=None)
@given(st.lists(st.tuples(NAMES, VALUES)), JSON, st.floats())
def test_no_header_and_no_body_makes_the_reader_fail(headers, body, now):
    wait = server_wait(headers, now=now, body=body)
    assert wait is None or (math.isfinite(wait) and wait >= 0)
    assert wait is None or 0 <= clamp_wait(wait) <= LONGEST_WAIT_SECONDS
