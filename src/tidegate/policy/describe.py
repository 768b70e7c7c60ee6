r"""Describes an exception as text that any store can keep, and that is safe to show.

If a failure could not be written, its task would neither retry nor die. So nothing here may raise, even if
the exception's own methods do. Characters that stores or terminals cannot handle are escaped (`\x00`,
`\ud800`). Secrets are replaced by stars.
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


def class_name_of(exc: BaseException) -> str:
    """Return the dotted name of the exception's class; for a built-in class the bare name."""
    try:
        kind = type(exc)
        module, name = kind.__module__, kind.__qualname__
        dotted = name if module in {"builtins", "__main__"} else f"{module}.{name}"
        return storable(dotted, _CLASS_NAME_LIMIT)
    except BaseException:  # see the module's docstring
        return "an exception whose class cannot be named"


def message_of(exc: BaseException) -> str:
    """Return the exception's own text, cut after `MESSAGE_LIMIT` characters."""
    try:
        text = str.__str__(str(exc))
        return redacted_text(
            _with_exit_code(exc, text) if isinstance(exc, SystemExit) else text, MESSAGE_LIMIT
        )
    except BaseException as fault:  # see the module's docstring
        return f"({class_name_of(exc)} has no readable message: {class_name_of(fault)} while reading it)"


def traceback_of(exc: BaseException) -> str:
    """Return the traceback with causes and contexts, without local variables.

    If it has more than `TRACEBACK_LIMIT` characters, its middle is cut out, and a mark shows the cut.
    """
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
