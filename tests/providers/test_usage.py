import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.usage import Usage
from tidegate.providers.usage import later, usage_of


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        (
            {
                "model": "gpt-5",
                "service_tier": "priority",
                "usage": {
                    "prompt_tokens": 100,
                    "completion_tokens": 50,
                    "total_tokens": 150,
                    "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 5},
                    "completion_tokens_details": {"reasoning_tokens": 30},
                },
            },
            Usage(100, 50, 80, 5, 30, "gpt-5", "priority"),
        ),
        (
            {"usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 8}},
            Usage(9, 1, cached_tokens=8),
        ),
        (
            {"usage": {"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.000123}},
            Usage(9, 1, cost_usd="0.000123"),
        ),
        (
            {
                "usage": {
                    "input_tokens": 20,
                    "output_tokens": 7,
                    "input_tokens_details": {"cached_tokens": 4},
                    "output_tokens_details": {"reasoning_tokens": 6},
                }
            },
            Usage(20, 7, cached_tokens=4, reasoning_tokens=6),
        ),
        (
            {
                "type": "response.completed",
                "response": {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 2}},
            },
            Usage(3, 2, model="m"),
        ),
        (
            {
                "model": "claude",
                "usage": {
                    "input_tokens": 10,
                    "cache_read_input_tokens": 200,
                    "cache_creation_input_tokens": 30,
                    "output_tokens": 5,
                    "service_tier": "standard",
                },
            },
            Usage(240, 5, 200, 30, model="claude", tier="standard"),
        ),
        (
            {
                "modelVersion": "gemini-3",
                "usageMetadata": {
                    "promptTokenCount": 40,
                    "cachedContentTokenCount": 10,
                    "candidatesTokenCount": 6,
                    "thoughtsTokenCount": 14,
                },
            },
            Usage(40, 20, cached_tokens=10, reasoning_tokens=14, model="gemini-3"),
        ),
        (
            {"usage": {"inputTokens": 4, "outputTokens": 2, "cacheReadInputTokens": 8}},
            Usage(12, 2, cached_tokens=8),
        ),
        (
            {
                "usage": {
                    "billed_units": {"input_tokens": 3.0, "output_tokens": 1.0},
                    "tokens": {"input_tokens": 70.0, "output_tokens": 2.0},
                }
            },
            Usage(70, 2),
        ),
        ({"model": "llama", "prompt_eval_count": 12, "eval_count": 34}, Usage(12, 34, model="llama")),
        ({"metrics": {"input_token_count": 1, "output_token_count": 2}}, Usage(1, 2)),
        ({"usage": {"total_tokens": 11}}, Usage(11)),
        ({"x_groq": {"usage": {"prompt_tokens": 5, "completion_tokens": 6}}}, Usage(5, 6)),
    ],
    ids=[
        "openai chat",
        "deepseek",
        "openrouter",
        "openai responses",
        "responses stream",
        "anthropic",
        "gemini",
        "bedrock",
        "cohere",
        "ollama",
        "replicate",
        "voyage",
        "groq stream",
    ],
)
def test_every_providers_usage_is_read_into_the_same_fields(answer, usage):
    assert usage_of(answer) == usage


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"usage": None},
        {"usage": {"prompt_tokens": -1}},
        {"usage": {"prompt_tokens": "9", "completion_tokens": True}},
        {"usage": {"prompt_tokens": 1e300}},
        {"usage": []},
        {"response": {"usage": {}}},
    ],
    ids=str,
)
def test_a_response_without_usable_counts_has_no_usage(answer):
    assert usage_of(answer) is None


def test_later_totals_of_a_stream_replace_earlier_ones_and_keep_missing_fields():
    pieces = [
        {
            "type": "message_start",
            "message": {"model": "claude", "usage": {"input_tokens": 25, "output_tokens": 1}},
        },
        {"type": "content_block_delta", "delta": {"text": "hi"}},
        {"type": "message_delta", "usage": {"output_tokens": 15}},
    ]
    known = None
    for piece in pieces:
        known = later(known, usage_of(piece))
    assert known == Usage(25, 15, model="claude")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["usage", "message", "response", "prompt_tokens", "input_tokens", "cost", "tokens"]
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None, database=None)
@given(st.dictionaries(st.sampled_from(["usage", "message", "model", "eval_count"]), JSON))
def test_no_response_makes_the_reader_fail(answer):
    usage = usage_of(answer)
    assert usage is None or min(usage.input_tokens, usage.output_tokens) >= 0
