"""Nothing that an exception holds makes the classifier fail."""

from threading import Lock
from types import SimpleNamespace

import pytest
from classify_support import PERMANENT, ApiError, answered
from hypothesis import given, settings
from hypothesis import strategies as st

from stand_ins import NOW
from tidegate.domain.spec import Rule
from tidegate.policy.classify import Classified, classify
from tidegate.providers.waits import LONGEST_WAIT_SECONDS


class Hostile(Exception):
    """Every look at it fails."""

    def __getattribute__(self, name):
        raise SystemExit(f"no {name} for you")

    def __str__(self):
        raise RuntimeError("nor any words")


class HostileMapping(dict):
    def items(self):
        raise RuntimeError

    def get(self, *_):
        raise RuntimeError

    def keys(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "build",
    [
        Hostile,
        lambda: ApiError(response=HostileMapping(a=1), headers=HostileMapping(a=1), body=HostileMapping(a=1)),
        lambda: ApiError(status_code=503, body={"error": HostileMapping(code=1)}),
        lambda: ApiError("boom\x00tail\ud800", code="\x00", request_id="\ud800", status_code=500),
        lambda: type("Odd", (ApiError,), {"__qualname__": "Odd\ud800\x00"})(code="\ud800"),
        lambda: answered(500, {"error": {"code": "rate_limited\ud800\x00"}}, {"X-Request-Id": "\x00"}),
        lambda: ApiError(lock=Lock(), status=lambda: 500, headers=dict, response=lambda: None),
    ],
    ids=["hostile", "mapping", "nested", "text", "names", "codes", "callables"],
)
def test_an_exception_whose_every_attribute_raises_is_still_classified(build):
    found = classify(build(), rules=[Rule(KeyError)], now=NOW, classifiers=[lambda e: None])
    assert isinstance(found, Classified)
    assert found.failure.error_class
    failure = found.failure
    for text in (
        failure.message,
        failure.error_class,
        failure.code,
        failure.request_id,
        failure.evidence,
        failure.traceback,
    ):
        text.encode("utf-8")
        assert "\x00" not in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "Error", "code", "type", "status", "details", "metadata", "retry_after"]
            ),
            inner,
        )
    ),
    max_leaves=6,
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        [
            "status_code",
            "http_status",
            "status",
            "code",
            "type",
            "body",
            "json_body",
            "details",
            "error",
            "headers",
            "response",
        ]
    ),
    JSON
    | st.sampled_from([200, 400, 429, 503, object(), SimpleNamespace(status_code=429, headers=[("a",)])]),
)


@settings(max_examples=150, deadline=None, database=None)
@given(ATTRIBUTES, st.text(), st.floats())
def test_no_attribute_makes_the_classifier_fail(attributes, message, now):
    failure = classify(ApiError(message, **attributes), now=now).failure
    assert not failure.evidence.startswith("could not be classified")
    assert failure.verdict is not PERMANENT or failure.wait_seconds is None
    assert failure.wait_seconds is None or 0 <= failure.wait_seconds <= LONGEST_WAIT_SECONDS
