"""A limit that headers show below the stored one is found, for each provider that shows limits."""

from __future__ import annotations

import pytest

from stand_ins import NOW
from tidegate.limits.learned_limits import merge_observed, windows_above_observed
from tidegate.limits.options import make_limits
from tidegate.limits.values import ObservedLimit
from tidegate.providers.limits import seen_limits
from tidegate.providers.packs import pack_for

SHOWN = {
    "openai": {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
    },
    "azure": {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59"},
    "anthropic": {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "57",
        "anthropic-ratelimit-requests-reset": "2026-11-02T12:00:00Z",
    },
    "mistral": {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-req-minute": "59"},
    "cohere": {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "59"},
    "together": {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "59", "x-ratelimit-reset": "1"},
    "fireworks": {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59"},
    "openrouter": {
        "x-ratelimit-limit": "60",
        "x-ratelimit-remaining": "59",
        "x-ratelimit-reset": "1793620860000",
    },
    "huggingface": {"ratelimit": '"api";r=59;t=60', "ratelimit-policy": '"fixed window";"api";q=60;w=60'},
    "litellm": {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "40"},
    "general": {"ratelimit-limit": "60", "ratelimit-remaining": "59", "ratelimit-reset": "60"},
}


def found_below(provider, headers, **limits):
    seen = seen_limits(headers, now=NOW, pack=pack_for(provider=provider))
    learned = merge_observed((), [ObservedLimit(each) for each in seen], now=1_000.0)
    return [(window.name, limit) for window, limit in windows_above_observed(make_limits(**limits), learned)]


@pytest.mark.parametrize("provider", SHOWN)
def test_a_limit_a_minute_below_the_stored_one_is_found(provider):
    assert found_below(provider, SHOWN[provider], requests_per_minute=900) == [("requests_per_minute", 60.0)]
    assert found_below(provider, SHOWN[provider], requests_per_minute=60) == []


def test_groqs_limit_on_requests_is_per_day():
    headers = {"x-ratelimit-limit-requests": "14400", "x-ratelimit-remaining-requests": "14370"}
    found = found_below("groq", headers, requests_per_minute=20_000, requests_per_day=20_000)
    assert found == [("requests_per_day", 14_400.0)]


def test_a_policy_of_another_window_is_compared_with_that_window():
    headers = {"RateLimit-Policy": '"default";q=500;w=86400'}
    found = found_below("huggingface", headers, requests_per_minute=600, requests_per_day=600)
    assert found == [("requests_per_day", 500.0)]
