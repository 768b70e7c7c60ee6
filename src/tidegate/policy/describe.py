"""Describes an exception as text that any store can keep.

If a failure could not be written, its task would neither retry nor die. So nothing here may raise, even if
the exception's own methods do, and the text contains no character that a database refuses.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from tidegate.domain.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT
from tidegate.domain.redaction import MARGIN, redact
from tidegate.domain.text import escaped, redacted_text, storable

if TYPE_CHECKING:
    from types import TracebackType

_CLASS_NAME_LIMIT = 300
_MOST_FRAMES = 100


def describe(exc: BaseException) -> tuple[str, str, str]:
    r"""Return (class name, message, traceback) of the exception, safe to store and show. Never raises.

    The class name is dotted; for built-in classes it is the bare name, as Python prints it. Characters that
    stores or terminals cannot handle are escaped (`\x00`, `\ud800`). A message over `MESSAGE_LIMIT`
    characters loses its end, a traceback over `TRACEBACK_LIMIT` its middle, and a mark shows the cut. The
    traceback includes causes and contexts but no local variables. Secrets are replaced by stars.
    """
    return class_name_of(exc), message_of(exc), traceback_of(exc)


def class_name_of(exc: BaseException) -> str:
    """Return the dotted name of the exception's class, storable. Never raises."""
    try:
        kind = type(exc)
        module, name = kind.__module__, kind.__qualname__
        dotted = name if module in {"builtins", "__main__"} else f"{module}.{name}"
        return storable(dotted, _CLASS_NAME_LIMIT)
    except BaseException:  # see the module's docstring
        return "an exception whose class cannot be named"


def message_of(exc: BaseException) -> str:
    """Return the exception's own text, storable, without secrets, cut to `MESSAGE_LIMIT`. Never raises."""
    try:
        text = str.__str__(str(exc))
        return redacted_text(
            _with_exit_code(exc, text) if isinstance(exc, SystemExit) else text, MESSAGE_LIMIT
        )
    except BaseException as fault:  # see the module's docstring
        return f"({class_name_of(exc)} has no readable message: {class_name_of(fault)} while reading it)"


def traceback_of(exc: BaseException) -> str:
    """Return the traceback as storable text. Over `TRACEBACK_LIMIT` its middle is cut out. Never raises."""
    for form in (_full_report, _plain_frames):
        try:
            return _middle_cut(form(exc), TRACEBACK_LIMIT)
        except BaseException:  # noqa: S112 - see the module's docstring
            continue
    return f"{class_name_of(exc)}: {message_of(exc)}\n"


def _middle_cut(text: str, limit: int) -> str:
    head = escaped(redact(text[: limit + MARGIN]))
    if len(text) <= limit and len(head) <= limit:
        return head
    tail = escaped(redact(text[-limit - MARGIN :]))
    mark = f"\n… (cut, {len(text)} characters)\n"
    kept = (limit - len(mark)) // 2
    return head[:kept] + mark + tail[-kept:]


def _with_exit_code(exc: SystemExit, text: str) -> str:
    if exc.code is None:
        return "exit code 0"
    return f"exit code {text}" if isinstance(exc.code, int) else f"exit code 1: {text}"


def _full_report(exc: BaseException) -> str:
    report = traceback.TracebackException(type(exc), exc, exc.__traceback__, compact=True)
    return "".join(report.format())


def _plain_frames(exc: BaseException) -> str:
    """Return the file, line and function of each frame, without calling code that could fail."""
    lines = ["Traceback (most recent call last), source lines not available:"]
    frame: TracebackType | None = exc.__traceback__
    while frame is not None and len(lines) <= _MOST_FRAMES:
        code = frame.tb_frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.tb_lineno}, in {code.co_name}')
        frame = frame.tb_next
    lines.append(f"{class_name_of(exc)}: {message_of(exc)}")
    return "\n".join(lines) + "\n"
