"""Formats the log lines of Tidegate's own processes: text or JSON, one record per line, without secrets."""

from __future__ import annotations

import functools
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidegate.context import child_context, current_context
from tidegate.context.trace import current_trace
from tidegate.domain.text import one_line, redacted_text

MAX_MESSAGE_LENGTH = 16_000
"""Longer messages are cut to this many characters."""
MAX_TRACEBACK_LENGTH = 32_000
"""Longer tracebacks are cut to this many characters."""

PLAIN = {"is_plain": True}
"""The `extra` of records that hold only names, ids and numbers, and are not searched for secrets."""

_TASK_FIELDS = ("task_id", "run", "queue", "function")
_FIELDS = (*_TASK_FIELDS, "trace_id", "span_id")
_TEXT_FIELDS = ("task_id", "run", "queue", "trace_id")
"""The fields of the running task that a line of text shows."""
Fields = Mapping[str, object]
"""More fields of a record, by name."""


class RunMessage(NamedTuple):
    """A log message about one run, of names, ids and numbers only, with the fields of its record."""

    message: str
    task_id: str
    run: int
    queue: str
    function: str
    trace_id: str = ""
    """The trace of the run; empty if it is not traced."""

    @property
    def fields(self) -> dict[str, object]:
        """The fields of the message's record."""
        fields: dict[str, object] = {
            "task_id": self.task_id,
            "run": self.run,
            "queue": self.queue,
            "function": self.function,
        }
        if self.trace_id:
            fields["trace_id"] = self.trace_id
        return fields


_STANDARD_LIBRARY = str(Path(os.__file__).parent)


class TaskFieldsFilter(logging.Filter):
    """Adds fields of the running task and its trace to each record; outside a task the fields are None.

    The fields are `task_id`, `run`, `queue`, `function`, `trace_id` and `span_id`. A record that already has
    a field of that name keeps it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields to a record; let every record pass."""
        present = vars(record)
        if not all(name in present for name in _FIELDS):
            for name, value in task_fields().items():
                present.setdefault(name, value)
        return True


def task_fields() -> dict[str, object]:
    """Return the log fields of the running task; each is None outside a task or without a trace."""
    context = current_context() or child_context()
    fields: dict[str, object] = {
        name: None if context is None else getattr(context, name) for name in _TASK_FIELDS
    }
    trace = current_trace() or (None if context is None else context.trace)
    fields["trace_id"] = None if trace is None else trace.trace_id
    fields["span_id"] = None if trace is None else trace.span_id
    return fields


class LibraryRecordsFilter(logging.Filter):
    """Drops records below WARNING from libraries; passes all records of Tidegate and the application.

    A package is a library if it is installed (in `site-packages`) or part of Python. At the first dropped
    record its logger is set to WARNING, so that later records cost nothing. A logger whose level was set
    explicitly is left alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.own = {"tidegate", "root", "__main__"}
        """Top-level packages whose records pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether this record is logged."""
        if record.levelno >= logging.WARNING:
            return True
        top = record.name.partition(".")[0]
        if top in self.own or not _is_library(top):
            return True
        names = [record.name.rsplit(".", depth)[0] for depth in range(record.name.count(".") + 1)]
        if any(logging.getLogger(name).level != logging.NOTSET for name in names):
            return True
        logging.getLogger(top).setLevel(logging.WARNING)
        return False


def _is_library(package: str) -> bool:
    file = getattr(sys.modules.get(package), "__file__", None)
    if not isinstance(file, str):
        return False
    return "site-packages" in file or "dist-packages" in file or file.startswith(_STANDARD_LIBRARY)


class TextFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER[PROCESS] MESSAGE task_id=… run=… queue=… trace_id=…`, then the traceback, indented.

    Control characters are escaped, so that no message can start a new line or control a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines, without the final line break."""
        first = self.line(
            format_time(record.created),
            record.levelname,
            record.name,
            record.process,
            _message(record),
            _fields(record),
        )
        if not (found := _traceback(record)):
            return first
        return "\n".join([first, *(f"    {one_line(line)}" for line in found.splitlines())])

    def line(
        self, time_text: str, level: str, logger: str, process: int | None, message: str, fields: Fields
    ) -> str:
        """Return one line, without the line break."""
        task = "".join([f" {name}={fields[name]}" for name in _TEXT_FIELDS if name in fields])
        return one_line(f"{_start(time_text, level, logger, process)}{message}{task}")

    def run_lines(
        self, time_text: str, level: str, logger: str, process: int, runs: Sequence[RunMessage]
    ) -> list[str]:
        """Return one line for each run, as `line` does, in a fraction of the time."""
        start = _start(time_text, level, logger, process)
        return [
            one_line(
                f"{start}{message} task_id={task_id} run={run} queue={queue}"
                + (f" trace_id={trace_id}" if trace_id else "")
            )
            for message, task_id, run, queue, _, trace_id in runs
        ]


class JsonFormatter(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, without the line break."""
        fields = _fields(record)
        if found := _traceback(record):
            fields["exception"] = found
        return self.line(
            format_time(record.created),
            record.levelname,
            record.name,
            record.process,
            _message(record),
            fields,
        )

    def line(
        self, time_text: str, level: str, logger: str, process: int | None, message: str, fields: Fields
    ) -> str:
        """Return one line, without the line break."""
        entry: dict[str, object] = {
            "time": time_text,
            "level": level,
            "logger": logger,
            "process": process,
            "message": message,
            **fields,
        }
        return msgspec.json.encode({name: _encodable(value) for name, value in entry.items()}).decode()

    def run_lines(
        self, time_text: str, level: str, logger: str, process: int, runs: Sequence[RunMessage]
    ) -> list[str]:
        """Return one line for each run, as `line` does."""
        return [self.line(time_text, level, logger, process, run.message, run.fields) for run in runs]


LogFormatter = TextFormatter | JsonFormatter


def _start(time_text: str, level: str, logger: str, process: int | None) -> str:
    return f"{time_text} {level:<7} {logger}[{process}] "


def _fields(record: logging.LogRecord) -> dict[str, object]:
    found = {name: getattr(record, name, None) for name in _FIELDS}
    return {name: value for name, value in found.items() if value is not None}


def format_time(at: float) -> str:
    """Return a moment, in seconds since the epoch, as local time with its offset."""
    second = int(at)
    text, offset = _text_of_second(second)
    return f"{text}.{int((at - second) * 1000):03}{offset}"


@functools.lru_cache(maxsize=2)
def _text_of_second(second: int) -> tuple[str, str]:
    """Return a moment as text, without a fraction, and the offset of the time zone."""
    text = datetime.fromtimestamp(second).astimezone().isoformat(timespec="seconds")
    return text[:19], text[19:]


def _message(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception as error:  # a faulty log call must not lose the record
        message = f"{record.msg!r} (its arguments do not fit: {error!r})"
    if getattr(record, "is_plain", False):
        return message
    return redacted_text(message, MAX_MESSAGE_LENGTH)


def _traceback(record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and record.exc_info[1] is not None:
        try:
            parts.append("".join(traceback.format_exception(record.exc_info[1])))
        except Exception as error:  # the text of a user's exception may itself raise
            parts.append(f"{type(record.exc_info[1]).__name__} (its traceback cannot be shown: {error!r})")
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(record.stack_info)
    return redacted_text("\n".join(parts), MAX_TRACEBACK_LENGTH) if parts else ""


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value if isinstance(value, int | float) else str(value)
