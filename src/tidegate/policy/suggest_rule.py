"""Suggests the rule for a failure that has none, as a line of code."""

from __future__ import annotations

_CLASSIFIER = "@app.classifier  # returns a Failure for this error, see the page on failures"


def suggest_rule(error_class: str, *, tasks: int, succeeded: int) -> str:
    """Return the line that gives a failure a rule.

    If half of the tasks succeeded later, another run helps: `on`. Otherwise none does: `discard`.

    Args:
        error_class: The dotted name of the exception class; empty if there was none.
        tasks: How many tasks failed so.
        succeeded: How many of these tasks succeeded later.

    Example:
        >>> suggest_rule("shop.errors.Busy", tasks=4, succeeded=3)
        'retry=[on(Busy)]  # from shop.errors import Busy'
        >>> suggest_rule("KeyError", tasks=4, succeeded=0)
        'retry=[discard(KeyError)]'
    """
    module, _, name = error_class.rpartition(".")
    if not all(part.isidentifier() for part in error_class.split(".")):
        return _CLASSIFIER  # no exception, or a class inside of a function, which cannot be imported
    kind = "on" if 2 * succeeded >= tasks else "discard"
    return f"retry=[{kind}({name})]" + (f"  # from {module} import {name}" if module else "")
