"""Process titles for `ps` and `top`, if setproctitle is installed."""

from __future__ import annotations

import os
from collections.abc import Callable

_KEEP_ENVIRONMENT = "SPT_NOENV"
"""Makes setproctitle leave the environment in place: other processes read this process's mark there."""


def _finder() -> Callable[[str], None]:
    try:
        from setproctitle import setproctitle
    except ImportError:
        return lambda title: None

    def set_title(title: str) -> None:
        given = os.environ.get(_KEEP_ENVIRONMENT)
        os.environ[_KEEP_ENVIRONMENT] = "1"  # setproctitle reads this variable at its first call
        setproctitle(f"tidegate {title}")
        if given is None:
            del os.environ[_KEEP_ENVIRONMENT]

    return set_title


set_title = _finder()
"""Set the process title to `tidegate` and this text, cut to the length of the command line."""
