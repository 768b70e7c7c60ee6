"""Logging for processes that Tidegate itself starts. Applications that embed a worker keep their own setup.

A separate thread writes the lines to standard error (`log_writer`), so a slow reader never blocks the threads
that renew leases or start processes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

from tidegate.worker.log_formatters import (
    PLAIN,
    JsonFormatter,
    LibraryRecordsFilter,
    LogFormatter,
    RunMessage,
    TaskFieldsFilter,
    TextFormatter,
    format_time,
)
from tidegate.worker.log_writer import LogLineWriter

LEVEL = "TIDEGATE_LOG"
"""Environment variable: the log level of Tidegate and the application, `INFO` by default."""
FORMAT = "TIDEGATE_LOG_FORMAT"
"""Environment variable: `text`, the default, or `json`. Child processes inherit it."""

_STANDARD_ERROR = 2
_own = LibraryRecordsFilter()


class _Handler(logging.Handler):
    """Formats a record in the thread that logs it; the writer's thread writes it."""

    def __init__(self, formatter: LogFormatter, patience: float) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.addFilter(_own)
        self.addFilter(TaskFieldsFilter())
        self._own_filters = tuple(self.filters)
        self._formatter = formatter
        self._writer = LogLineWriter(_STANDARD_ERROR, dropped=self._dropped, patience=patience)

    @property
    def has_only_own_filters(self) -> bool:
        """Whether the handler has no filter or formatter of the application."""
        return tuple(self.filters) == self._own_filters and self.formatter is self._formatter

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record. Never raises."""
        try:
            line = self.format(record)
        except Exception as error:
            line = f"a record of {record.name} cannot be logged: {error!r}"
        self._writer.put(_encoded(line))

    def write(self, logger: str, runs: Sequence[RunMessage]) -> None:
        """Log these runs at INFO level without records."""
        lines = self._formatter.run_lines(format_time(time.time()), "INFO", logger, os.getpid(), runs)
        self.acquire()  # as `logging` does around a call of `emit`
        try:
            self._writer.put(_encoded("\n".join(lines)))
        finally:
            self.release()

    def close(self) -> None:
        """Wait briefly until all lines are written."""
        self._writer.close()
        super().close()

    def _dropped(self, count: int) -> bytes:
        record = logging.LogRecord(
            "tidegate.log",
            logging.WARNING,
            __file__,
            0,
            "%d log lines of this process were dropped: standard error was not read in time",
            (count,),
            None,
        )
        return self.format(record).encode() + b"\n"


def log_runs(logger: logging.Logger, runs: Sequence[RunMessage]) -> None:
    """Log these runs at INFO level, each in one line.

    If this process logs only as `set_up_logging` arranged it, the lines are written without a `LogRecord` for
    each, which takes a fraction of the time.
    """
    handler = _only_handler(logger)
    if handler is not None:
        handler.write(logger.name, runs)
        return
    for run in runs:
        logger.info("%s", run.message, extra=PLAIN | run.fields)


def _only_handler(logger: logging.Logger) -> _Handler | None:
    """Return our handler if no other handler or filter would see a record of this logger."""
    root = logging.getLogger()
    if logger.filters or len(root.handlers) != 1:
        return None
    place: logging.Logger | None = logger
    while place is not None and place is not root:
        if place.handlers or not place.propagate:
            return None
        place = place.parent
    only = root.handlers[0]
    return only if isinstance(only, _Handler) and only.has_only_own_filters else None


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "backslashreplace") + b"\n"


def set_up_logging(application: str = "", *, patience: float = 0.0) -> None:
    """Log to standard error, one line per record, unless the process has log handlers already.

    Args:
        application: `MODULE:NAME`; records of this module's package count as the application's own.
        patience: Seconds a log call may wait until its line is written; see `LogLineWriter`.
    """
    _own.own.add(application.partition(":")[0].partition(".")[0] or "root")
    root = logging.getLogger()
    if root.handlers:
        return
    level = os.environ.get(LEVEL, "INFO").upper()
    root.setLevel(level if level in logging.getLevelNamesMapping() else "INFO")
    formatter = JsonFormatter() if os.environ.get(FORMAT, "").lower() == "json" else TextFormatter()
    root.addHandler(_Handler(formatter, patience))
    logging.captureWarnings(True)


def register_application_loggers(functions: Any) -> None:
    """Count the packages of these task functions as the application's own, and add the task fields.

    Args:
        functions: The task functions by name; each has a `function`.
    """
    for function in functions.values():
        module = getattr(function.function, "__module__", None) or "root"
        _own.own.add(module.partition(".")[0])
    add_task_fields()


def add_task_fields() -> None:
    """Add the fields of the running task and its trace to the records of the root logger's handlers."""
    for handler in logging.getLogger().handlers:
        if not any(isinstance(log_filter, TaskFieldsFilter) for log_filter in handler.filters):
            handler.addFilter(TaskFieldsFilter())
