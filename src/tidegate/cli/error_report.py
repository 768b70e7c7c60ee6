"""How the command line reports an error: one line for people, one exit code for scripts."""

from __future__ import annotations

import traceback

import click

from tidegate.cli.formatting import printable
from tidegate.domain.redaction import redact
from tidegate.errors import (
    ApprovalNotFoundError,
    ConfigError,
    DoubtNotFoundError,
    KeyConflictError,
    MapNotFoundError,
    NotAcceptedError,
    OperationNotFoundError,
    ResultTimeoutError,
    StoreBusyError,
    StoreUnavailableError,
    TaskNotFoundError,
    TidegateError,
    UnknownFunctionError,
    UnknownScheduleError,
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
    (OperationNotFoundError, NOT_FOUND),
    (MapNotFoundError, NOT_FOUND),
    (DoubtNotFoundError, NOT_FOUND),
    (ApprovalNotFoundError, NOT_FOUND),
    (UnknownFunctionError, NOT_FOUND),
    (UnknownUpstreamError, NOT_FOUND),
    (UnknownScheduleError, NOT_FOUND),
    (NotAcceptedError, CONFLICT),
    (KeyConflictError, CONFLICT),
    (UsageError, USAGE),
    (ConfigError, WRONG_CONFIG),
    (StoreUnavailableError, UNREACHABLE),
    (StoreBusyError, TRY_LATER),
    (ResultTimeoutError, TIMED_OUT),
)


def exit_code(error: TidegateError) -> int:
    """Return the exit code for the first class that matches an error; 1 if no class matches."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), FAILED)


def report(error: TidegateError, *, as_json: bool = False) -> None:
    """Print an error to stderr in one line, with its cause if other code raised it.

    Args:
        error: The error to print.
        as_json: Print one object: `{"error": {"code": …, "message": …, "fix": …, "exit_code": …}}`.
    """
    if as_json:
        _print_json(error.code, error.message, error.fix, exit_code(error))
        return
    click.echo(f"Error: {printable(redact(str(error)))}", err=True)
    cause = error.__cause__
    if cause is not None and not isinstance(cause, TidegateError | OSError):
        frames = traceback.extract_tb(cause.__traceback__)
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        click.echo(f"  caused by {printable(redact(f'{type(cause).__name__}: {cause}'))}{place}", err=True)


def report_usage(error: click.ClickException, *, as_json: bool = False) -> None:
    """Print a usage error to stderr. JSON has the form that `report` describes, with the code `usage`."""
    if not as_json:
        error.show()
        return
    context = getattr(error, "ctx", None)
    fix = "" if context is None else f"see `{context.command_path} --help`"
    _print_json("usage", error.format_message(), fix, error.exit_code)


def _print_json(code: str, message: str, fix: str, exit_code: int) -> None:
    from tidegate.cli.output import json_text

    facts = {"code": code, "message": redact(message), "fix": redact(fix), "exit_code": exit_code}
    click.echo(json_text({"error": facts}), err=True)
