"""`tidegate classify`: how Tidegate would handle one response of a provider, or a file of responses."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.common import json_option, load_app
from tidegate.cli.error_report import FAILED
from tidegate.cli.failure_description import (
    DescribedFailure,
    DescriptionError,
    describe_failure,
    response_error,
)
from tidegate.cli.formatting import format_duration
from tidegate.cli.output import print_facts, print_json, print_message
from tidegate.cli.values import strict_json
from tidegate.domain.text import counted

if TYPE_CHECKING:
    from tidegate.domain.failure import Failure
    from tidegate.domain.outcome import Dead, Retrying
    from tidegate.policy.classify import Classifier


@dataclass(frozen=True, slots=True)
class _Classification:
    """The verdict on one failure and the resulting action."""

    id: object
    failure: Failure
    outcome: Dead | Retrying

    @property
    def action(self) -> str:
        """`dead`, `park` (waits, no attempt charged) or `retry` (waits, one attempt charged)."""
        from tidegate.domain.outcome import Charge, Dead

        if isinstance(self.outcome, Dead):
            return "dead"
        return "park" if self.outcome.charge is Charge.PARK else "retry"

    def record(self) -> dict[str, Any]:
        """Return the fields that are printed as JSON."""
        return {
            "id": self.id,
            "verdict": self.failure.verdict,
            "reason": self.failure.reason,
            "wait_s": self.failure.wait_seconds,
            "action": self.action,
        }


@click.command()
@click.argument("file", required=False)
@click.option(
    "--status", metavar="NUMBER", type=click.IntRange(100, 599), help="HTTP status of the response."
)
@click.option(
    "--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="A response header. Repeatable."
)
@click.option("--body", metavar="TEXT", help="Response body; @FILE reads it from a file, @- from stdin.")
@click.option("--jsonl", metavar="FILE", help="A file of failures, one JSON object per line; - is stdin.")
@click.option("--provider", metavar="NAME", help="The provider: openai, anthropic, openrouter…")
@click.option("--app", metavar="MODULE:NAME", help="Try this application's classifiers first.")
@json_option
def command(
    file: str | None,
    status: int | None,
    headers: Sequence[str],
    body: str | None,
    jsonl: str | None,
    provider: str | None,
    app: str | None,
    as_json: bool,
) -> int:
    """Show how Tidegate would handle a provider's response.

    Describe the response with --status, --header and --body, or give a FILE (- is stdin) that contains the
    response as `curl -i` prints it, or as one JSON object. --jsonl prints one JSON line per input line: id,
    verdict, reason, wait_s (the wait the server asked for, in seconds) and action: dead, park (waits, no
    attempt charged) or retry (waits, one attempt charged). Lines that cannot be read are reported on stderr;
    the other lines are still classified, and the exit code is 1.

    A line describes a response (status, headers and body) or an exception (exception, mro: its classes, the
    nearest first, attrs, args, cause, context and children). Both may have id, provider and now (the moment
    with which dates are compared).
    """
    _check_usage(file, status, headers, body, jsonl)
    classifiers = tuple(load_app(app).classifiers) if app is not None else ()
    if jsonl is not None:
        return _classify_lines(jsonl, provider, classifiers)
    try:
        described = _from_options(status, headers, body) if status is not None else _from_file(file or "-")
        classification = _classify(described, provider, classifiers)
    except DescriptionError as error:
        print_message(f"Error: {error}")
        return FAILED
    print_json(classification.record()) if as_json else _print(classification)
    return 0


def _check_usage(
    file: str | None, status: int | None, headers: Sequence[str], body: str | None, jsonl: str | None
) -> None:
    ways = [name for name, given in (("FILE", file), ("--status", status), ("--jsonl", jsonl)) if given]
    if len(ways) > 1:
        raise click.UsageError(f"{' and '.join(ways)} exclude each other")
    if status is None and (headers or body is not None):
        raise click.UsageError("--header and --body need --status")
    if not ways and sys.stdin.isatty():
        raise click.UsageError("give the response with --status, a FILE or --jsonl, or pipe it in")


# --- one response --------------------------------------------------------------------------------------


def _from_options(status: int, headers: Sequence[str], body: str | None) -> DescribedFailure:
    if body is not None and body.startswith("@"):
        body = _read(body[1:]).decode("utf-8", "replace")
    pairs = [_header(line) for line in headers]
    return DescribedFailure("", response_error(status, pairs, body or ""), "", None)


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise DescriptionError(f"{line!r} is not a header: write 'Name: value'")
    return name.strip(), value.strip()


def _from_file(name: str) -> DescribedFailure:
    text = _read(name).decode("utf-8-sig", "replace")
    if text.lstrip().startswith("{"):
        return describe_failure(_parse_json(text))
    if not text.startswith("HTTP/"):
        raise DescriptionError(
            f"{_shown(name)} is neither a response as `curl -i` prints it nor a JSON object"
        )
    head, body = _last_response(text)
    first, *lines = head.splitlines()
    words = first.split()
    if len(words) < 2 or not words[1].isdigit():
        raise DescriptionError(f"{_shown(name)}:1: {first!r} has no status")
    return DescribedFailure(
        "", response_error(int(words[1]), [_header(line) for line in lines], body), "", None
    )


def _last_response(text: str) -> tuple[str, str]:
    """Return head and body of the last response; curl prints redirects and 100 responses before it."""
    body = text.replace("\r\n", "\n")
    while True:
        head, _, body = body.partition("\n\n")
        if not body.startswith("HTTP/"):
            return head, body


def _print(classification: _Classification) -> None:
    failure, outcome = classification.failure, classification.outcome
    print_facts(
        {
            "verdict": failure.verdict,
            "reason": failure.reason,
            "wait": None if failure.wait_seconds is None else format_duration(failure.wait_seconds),
            "action": f"{classification.action}: {outcome.why}",
            "because": failure.evidence,
            "code": failure.code,
            "request id": failure.request_id,
        }
    )


# --- many responses ------------------------------------------------------------------------------------


def _classify_lines(name: str, provider: str | None, classifiers: Sequence[Classifier]) -> int:
    bad = 0
    for number, line in enumerate(_lines(name), 1):
        if not line.strip():
            continue
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            described = describe_failure(_parse_json(text), default_id=str(number))
            print_json(_classify(described, provider, classifiers).record())
        except UnicodeDecodeError:
            print_message(f"Error: {_shown(name)}:{number}: not UTF-8")
            bad += 1
        except DescriptionError as error:
            print_message(f"Error: {_shown(name)}:{number}: {error}")
            bad += 1
    if bad:
        print_message(
            f"{counted(bad, 'line')} of {_shown(name)} could not be read; the others were classified"
        )
    return FAILED if bad else 0


def _parse_json(text: str) -> object:
    try:
        return strict_json(text)
    except (ValueError, RecursionError) as error:
        raise DescriptionError(f"not JSON: {error}") from None


def _classify(
    described: DescribedFailure, provider: str | None, classifiers: Sequence[Classifier]
) -> _Classification:
    """Classify the failure and decide as a worker would on a task's first attempt."""
    from tidegate.domain.outcome import Counters, Fence
    from tidegate.domain.spec import TaskSpec
    from tidegate.policy.classify import classify
    from tidegate.policy.retry import RetryTerms, decide

    found = classify(
        described.error,
        now=time.time() if described.now is None else described.now,
        classifiers=classifiers,
        provider=provider or described.provider,
        longest_wait_seconds=float("inf"),
    )
    outcome = decide(
        Fence(str(described.id), 1),
        found.failure,
        None,
        RetryTerms.of(TaskSpec("")),
        Counters(),
        random.Random(0),
    )
    return _Classification(described.id, found.failure, outcome)


# --- files ---------------------------------------------------------------------------------------------


def _shown(name: str) -> str:
    return "stdin" if name == "-" else name


def _read(name: str) -> bytes:
    return b"".join(_lines(name))


def _lines(name: str) -> Iterator[bytes]:
    """Yield the lines of a file, or of stdin for `-`."""
    if name == "-":
        yield from sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield from file
    except OSError as error:
        raise click.UsageError(f"cannot read {name}: {error.strerror}") from None
