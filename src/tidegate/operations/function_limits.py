"""Rate limits of task functions: read them, set them by hand, and hand them back to the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.domain.spec import Window
from tidegate.domain.text import format_duration
from tidegate.limits.options import rate_window
from tidegate.limits.settings import GateKind, Limits
from tidegate.operations.pauses import record
from tidegate.store.protocol import Store

RATE_LIMIT = "rate_limit"
CODE = "code"
"""The value that hands a limit back to the code."""
NONE = "none"
"""The value that removes a limit."""


@dataclass(frozen=True, slots=True)
class FunctionLimit:
    """The rate limit of one function that is in force."""

    function: str
    window: Window | None
    """The limit; None if the function is not limited."""
    is_by_hand: bool
    """Whether a person set the limit. The limit in the code is then ignored until this one is handed back."""

    def describe(self) -> str:
        """Return the limit as text, such as `80 in 1 min (set by hand)`."""
        words = "not limited" if self.window is None else describe_window(self.window)
        return f"{words} (set by hand)" if self.is_by_hand else words


def describe_window(window: Window) -> str:
    """Return a rate as text, such as `80 in 1 min`."""
    return f"{window.amount} in {format_duration(window.seconds)}"


async def read_function_limits(store: Store) -> dict[str, FunctionLimit]:
    """Return the stored rate limits of functions, by function."""
    return {
        row.name: FunctionLimit(
            row.name, row.limits.window(RATE_LIMIT), RATE_LIMIT in row.limits.set_by_person
        )
        for row in await store.list_gates()
        if row.kind is GateKind.FUNCTION
    }


async def set_function_limit(store: Store, function: str, rate: str, *, by: str, why: str = "") -> str:
    """Change a function's rate limit for all workers, from the next claim on; return what is in force.

    Args:
        store: Holds the limits.
        function: The full name of a declared function.
        rate: The limit, such as `80/min`; `none` removes the limit, `code` hands it back to the code.
        by: Who changes the limit, for the audit log.
        why: The reason, for the audit log.

    Raises:
        OptionError: The rate cannot be read.
    """
    if rate == CODE:
        declared = _declared_window(await store.load_manifests(), function)
        limits = None if declared is None else Limits((declared,))
        await store.set_function_limits(function, limits)
        answer = "as in the code: " + ("not limited" if declared is None else describe_window(declared))
    else:
        window = None if rate == NONE else rate_window(RATE_LIMIT, rate)
        windows = () if window is None else (window,)
        await store.set_function_limits(function, Limits(windows, set_by_person=(RATE_LIMIT,)))
        answer = "not limited" if window is None else describe_window(window)
    await record(store, by, "rate limit set", function, answer, why)
    return answer


def _declared_window(manifests: Mapping[str, Mapping[str, Any]], function: str) -> Window | None:
    """Return the rate limit that an application declares for a function; None if it declares none."""
    for manifest in manifests.values():
        functions = manifest.get("functions", {})
        found = functions.get(function, {}).get(RATE_LIMIT) if isinstance(functions, dict) else None
        if found:
            amount, seconds = found
            return Window(RATE_LIMIT, amount, seconds)
    return None
