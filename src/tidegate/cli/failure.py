"""What becomes of an error at the command line: one line for people, one exit code for scripts."""

from __future__ import annotations

import traceback

import click

from tidegate.cli.text import clean
from tidegate.domain.redaction import redact
from tidegate.errors import (
    ConfigError,
    KeyConflictError,
    NotAcceptedError,
    ResultTimeoutError,
    StoreBusyError,
    StoreUnavailableError,
    TaskNotFoundError,
    TidegateError,
    UnknownFunctionError,
    UnknownUpstreamError,
    UsageError,
)

FAILED = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
UNREACHABLE = 69
TRY_LATER = 75
WRONG_CONFIG = 78
TIMED_OUT = 124

_EXIT_CODES: tuple[tuple[type[TidegateError], int], ...] = (
    (TaskNotFoundError, NOT_FOUND),
    (UnknownFunctionError, NOT_FOUND),
    (UnknownUpstreamError, NOT_FOUND),
    (NotAcceptedError, CONFLICT),
    (KeyConflictError, CONFLICT),
    (UsageError, USAGE),
    (ConfigError, WRONG_CONFIG),
    (StoreUnavailableError, UNREACHABLE),
    (StoreBusyError, TRY_LATER),
    (ResultTimeoutError, TIMED_OUT),
)


def exit_code(error: TidegateError) -> int:
    """Return the exit code an error stands for: of the first kind it is of, else 1."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), FAILED)


def report(error: TidegateError) -> None:
    """Print an error to stderr in a line, and where it came from if other code raised it."""
    click.echo(f"Error: {clean(redact(str(error)))}", err=True)
    cause = error.__cause__
    if cause is not None and not isinstance(cause, TidegateError | OSError):
        frames = traceback.extract_tb(cause.__traceback__)
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        click.echo(f"  caused by {clean(redact(f'{type(cause).__name__}: {cause}'))}{place}", err=True)
