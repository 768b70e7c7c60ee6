"""Logging for processes that Tidegate itself starts. Applications that embed a worker keep their own."""

from __future__ import annotations

import logging
import os
import sys


def set_up_logging() -> None:
    """Log to standard error, one line a record, unless the process has handlers already."""
    level = os.environ.get("TIDEGATE_LOG", "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        level = "INFO"
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s[%(process)d] %(message)s"
    )
