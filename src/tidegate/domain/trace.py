"""W3C trace context: which trace a task belongs to, as HTTP headers carry it and as the store keeps it.

A task keeps the trace in two labels, so every way to enqueue carries it and neither store needs a column for
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Self

TRACEPARENT_LABEL = "tidegate.traceparent"
"""The label of a task with the trace that enqueued it, as the header `traceparent` writes it."""
TRACESTATE_LABEL = "tidegate.tracestate"
"""The label with what tracing vendors add to it, as the header `tracestate` writes it."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}", re.ASCII)
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16


class TraceContext(NamedTuple):
    """One span of a trace: what is done on its behalf continues the trace."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    flags: str = "01"
    """Two hexadecimal digits; `01`: the caller records the trace."""
    state: str = ""
    """The header `tracestate`; empty if there is none."""

    @classmethod
    def parse(cls, traceparent: str | None, tracestate: str | None = None) -> Self | None:
        """Return what these headers say; None if `traceparent` is missing or invalid.

        An invalid `tracestate` is dropped without the `traceparent`, as the standard requires.
        """
        found = _TRACEPARENT.fullmatch((traceparent or "").strip())
        if found is None:
            return None
        version, trace_id, span_id, flags, more = found.groups()
        if version == "ff" or (version == "00" and more) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            return None
        state = (tracestate or "").strip()
        return cls(trace_id, span_id, flags, state if _TRACESTATE.fullmatch(state) else "")

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> Self | None:
        """Return the trace that enqueued a task with these labels; None if it is unknown."""
        if TRACEPARENT_LABEL not in labels:
            return None
        return cls.parse(labels[TRACEPARENT_LABEL], labels.get(TRACESTATE_LABEL))

    @property
    def traceparent(self) -> str:
        """The header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"

    def labels(self) -> dict[str, str]:
        """Return the labels in which a task stores the trace."""
        state = {TRACESTATE_LABEL: self.state} if self.state else {}
        return {TRACEPARENT_LABEL: self.traceparent, **state}


def trace_id_of(labels: Mapping[str, str]) -> str:
    """Return the trace that enqueued a task with these labels; empty if it is unknown."""
    if not labels:
        return ""
    trace = TraceContext.of_labels(labels)
    return "" if trace is None else trace.trace_id
