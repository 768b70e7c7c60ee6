import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stand_ins import CASES, NOW, header_list
from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.providers.limits import seen_limits
from tidegate.providers.packs import pack_for


def test_openais_headers_show_each_dimension():
    headers = {
        "X-RateLimit-Limit-Requests": "5000",
        "x-ratelimit-remaining-requests": "4999",
        "x-ratelimit-reset-requests": "12ms",
        "x-ratelimit-limit-tokens": "160000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m2.5s",
    }
    assert seen_limits(headers, now=NOW) == (
        HeaderLimit(Dimension.REQUESTS, 5000.0, 4999.0, 0.012),
        HeaderLimit(Dimension.TOKENS, 160000.0, 0.0, 62.5),
    )


def test_anthropics_headers_show_each_dimension_and_its_reset_time():
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-11-02T12:00:17Z",
        "anthropic-ratelimit-input-tokens-remaining": "1000",
        "anthropic-ratelimit-output-tokens-limit": "8000",
    }
    assert seen_limits(headers, now=NOW) == (
        HeaderLimit(Dimension.REQUESTS, 50.0, 49.0, 17.0),
        HeaderLimit(Dimension.INPUT_TOKENS, remaining=1000.0),
        HeaderLimit(Dimension.OUTPUT_TOKENS, 8000.0),
    )


def test_an_exhausted_item_of_the_ietf_draft_is_an_exhausted_limit():
    headers = {"RateLimit": '"permin";r=0;t=12, "perday";r=950;t=40000'}
    assert seen_limits(headers, now=NOW) == (HeaderLimit(Dimension.REQUESTS, None, 0.0, 12.0),)


def test_a_window_comes_from_the_header_or_from_the_pack():
    mistral = {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-tokens-minute": "7"}
    assert seen_limits(mistral, now=NOW) == (
        HeaderLimit(Dimension.REQUESTS, 60.0, window_seconds=60.0),
        HeaderLimit(Dimension.TOKENS, remaining=7.0, window_seconds=60.0),
    )
    groq = {"x-ratelimit-limit-requests": "14400", "x-ratelimit-limit-tokens": "18000"}
    seen = seen_limits(groq, now=NOW, pack=pack_for(provider="groq"))
    assert [limit.window_seconds for limit in seen] == [86_400.0, None]


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ({}, ()),
        ({"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1"}, ()),
        ({"x-ratelimit-limit-images": "5"}, ()),
        ({"x-ratelimit-remaining": "3"}, (HeaderLimit(Dimension.REQUESTS, remaining=3.0),)),
        ({"RateLimit-Reset": "30"}, (HeaderLimit(Dimension.REQUESTS, reset_seconds=30.0),)),
        ({"x-ratelimit-limit-requests": "many"}, ()),
        ({"RateLimit": '"permin";r=7;t=12, "perday";r=950;t=40000'}, ()),
        ({"RateLimit": "default r=0 t=30"}, ()),
        (None, ()),
    ],
    ids=str,
)
def test_headers_without_usable_values_show_no_limit(headers, seen):
    assert seen_limits(headers, now=NOW) == seen


@pytest.mark.parametrize("case", [c for c in CASES if "headers" in c], ids=lambda case: case["id"])
def test_the_headers_of_every_case_can_be_read(case):
    for limit in seen_limits(header_list(case), now=NOW):
        assert all(
            value is None or value >= 0 for value in (limit.limit, limit.remaining, limit.reset_seconds)
        )


@settings(max_examples=100, deadline=None, database=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x-ratelimit-limit-tokens", "anthropic-ratelimit-requests-reset", "date"]),
            st.text(),
        )
    ),
    st.floats(),
)
def test_no_header_makes_the_reader_fail(headers, now):
    assert isinstance(seen_limits(headers, now=now), tuple)
