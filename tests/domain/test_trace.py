"""Reading and writing W3C trace context."""

from __future__ import annotations

import pytest

from tidegate.domain.trace import TraceContext, trace_id_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"


def test_a_trace_survives_the_labels_of_a_task() -> None:
    trace = TraceContext.parse(VALID, "vendor=1,other=2")
    assert trace == TraceContext(TRACE, SPAN, "01", "vendor=1,other=2")
    assert TraceContext.of_labels({"document": "7", **trace.labels()}) == trace
    assert trace.traceparent == VALID


def test_a_header_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert TraceContext.parse(f"cc-{TRACE}-{SPAN}-01-what-comes-later") == TraceContext(TRACE, SPAN, "01")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "garbage",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01\n00-{TRACE}-{SPAN}-01",
    ],
)
def test_an_invalid_header_names_no_trace(header: str | None) -> None:
    assert TraceContext.parse(header) is None


@pytest.mark.parametrize("state", ["x" * 513, "käse=1", "a=1\nb=2"])
def test_an_invalid_tracestate_is_dropped_alone(state: str) -> None:
    assert TraceContext.parse(VALID, state) == TraceContext(TRACE, SPAN, "01", "")


def test_labels_without_a_trace_name_none() -> None:
    assert trace_id_of({}) == trace_id_of({"document": "7"}) == ""
    assert trace_id_of({"tidegate.traceparent": "garbage"}) == ""
    assert trace_id_of({"tidegate.traceparent": VALID}) == TRACE
