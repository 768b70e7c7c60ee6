"""Process titles for `ps` and `top`, where setproctitle is installed."""

from __future__ import annotations

from collections.abc import Callable


def _finder() -> Callable[[str], None]:
    try:
        from setproctitle import setproctitle
    except ImportError:
        return lambda title: None
    return lambda title: setproctitle(f"tidegate {title}")


set_title = _finder()
"""Show what this process does, after the word `tidegate`."""
