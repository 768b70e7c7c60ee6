"""`tidegate classify`: what Tidegate would do about one answer of a provider, or about a file of them."""

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

if TYPE_CHECKING:
    from tidegate.domain.failure import Failure
    from tidegate.domain.outcome import Outcome
    from tidegate.policy.classify import Classifier


@dataclass(frozen=True, slots=True)
class _Classification:
    """What would be done about one failure."""

    id: object
    failure: Failure
    outcome: Outcome

    @property
    def action(self) -> str:
        """`dead`, `park` (waits uncharged) or `retry` (waits, and an attempt is charged)."""
        from tidegate.domain.outcome import Charge, Dead, Retrying

        if isinstance(self.outcome, Dead):
            return "dead"
        assert isinstance(self.outcome, Retrying)
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
@click.option("--status", metavar="NUMBER", type=click.IntRange(100, 599), help="The answer's HTTP status.")
@click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="A header. Repeatable.")
@click.option("--body", metavar="TEXT", help="The answer's body; @FILE reads it from a file, @- from stdin.")
@click.option("--jsonl", metavar="FILE", help="Many failures, one JSON object a line; - is stdin.")
@click.option("--provider", metavar="NAME", help="Who answered: openai, anthropic, openrouter…")
@click.option("--app", metavar="MODULE:NAME", help="Ask this application's classifiers first.")
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
    """Say what Tidegate would do about an answer.

    Name it by --status, --header and --body, or give a FILE (- is stdin) with the answer as `curl -i` prints
    it, or as one JSON object. With --jsonl there is one JSON line out for each line in: id, verdict, reason,
    wait_s (the wait the server asked for, in seconds) and action: dead, park (waits uncharged) or retry
    (waits, and an attempt is charged). Lines that cannot be read are told of on stderr, all others are
    answered, and the exit code is 1.
    """
    _check_usage(file, status, headers, body, jsonl)
    classifiers = tuple(load_app(app).classifiers) if app is not None else ()
    if jsonl is not None:
        return _classify_lines(jsonl, provider, classifiers)
    try:
        one = _from_options(status, headers, body) if status is not None else _from_file(file or "-")
        answer = _classify(one, provider, classifiers)
    except DescriptionError as error:
        print_message(f"Error: {error}")
        return FAILED
    print_json(answer.record()) if as_json else _print(answer)
    return 0


def _check_usage(
    file: str | None, status: int | None, headers: Sequence[str], body: str | None, jsonl: str | None
) -> None:
    ways = [name for name, given in (("FILE", file), ("--status", status), ("--jsonl", jsonl)) if given]
    if len(ways) > 1:
        raise click.UsageError(f"{' and '.join(ways)} exclude each other")
    if status is None and (headers or body is not None):
        raise click.UsageError("--header and --body belong to --status")
    if not ways and sys.stdin.isatty():
        raise click.UsageError("name the answer by --status, a FILE or --jsonl, or pipe it in")


# --- one answer ------------------------------------------------------------------------------------------


def _from_options(status: int, headers: Sequence[str], body: str | None) -> DescribedFailure:
    if body is not None and body.startswith("@"):
        body = _read(body[1:]).decode("utf-8", "replace")
    pairs = [_header(line) for line in headers]
    return DescribedFailure("", response_error(status, pairs, body or ""), "", None)


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise DescriptionError(f"{line!r} is no header: write 'Name: value'")
    return name.strip(), value.strip()


def _from_file(name: str) -> DescribedFailure:
    text = _read(name).decode("utf-8-sig", "replace")
    if text.lstrip().startswith("{"):
        return describe_failure(_parse_json(text))
    if not text.startswith("HTTP/"):
        raise DescriptionError(
            f"{_shown(name)} is neither an answer as `curl -i` prints it nor a JSON object"
        )
    head, body = _last_answer(text)
    first, *lines = head.splitlines()
    words = first.split()
    if len(words) < 2 or not words[1].isdigit():
        raise DescriptionError(f"{_shown(name)}:1: {first!r} has no status")
    return DescribedFailure(
        "", response_error(int(words[1]), [_header(line) for line in lines], body), "", None
    )


def _last_answer(text: str) -> tuple[str, str]:
    """Return head and body of the last answer: curl also prints the redirects and the 100s before it."""
    body = text.replace("\r\n", "\n")
    while True:
        head, _, body = body.partition("\n\n")
        if not body.startswith("HTTP/"):
            return head, body


def _print(answer: _Classification) -> None:
    failure = answer.failure
    print_facts(
        {
            "verdict": failure.verdict,
            "reason": failure.reason,
            "wait": None if failure.wait_seconds is None else format_duration(failure.wait_seconds),
            "action": f"{answer.action}: {answer.outcome.why}" if hasattr(answer.outcome, "why") else "",
            "because": failure.evidence,
            "code": failure.code,
            "request id": failure.request_id,
        }
    )


# --- many ------------------------------------------------------------------------------------------------


def _classify_lines(name: str, provider: str | None, classifiers: Sequence[Classifier]) -> int:
    bad = 0
    for number, line in enumerate(_lines(name), 1):
        if not line.strip():
            continue
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            one = describe_failure(_parse_json(text), default_id=str(number))
            print_json(_classify(one, provider, classifiers).record())
        except UnicodeDecodeError:
            print_message(f"Error: {_shown(name)}:{number}: not UTF-8")
            bad += 1
        except DescriptionError as error:
            print_message(f"Error: {_shown(name)}:{number}: {error}")
            bad += 1
    if bad:
        print_message(
            f"{bad} {'line' if bad == 1 else 'lines'} of {_shown(name)} could not be read; all others were"
        )
    return FAILED if bad else 0


def _parse_json(text: str) -> object:
    try:
        return strict_json(text)
    except (ValueError, RecursionError) as error:
        raise DescriptionError(f"not JSON: {error}") from None


def _classify(
    one: DescribedFailure, provider: str | None, classifiers: Sequence[Classifier]
) -> _Classification:
    """Classify the failure and make the very decision a worker would, for a task's first attempt."""
    from tidegate.domain.outcome import Counters, Fence
    from tidegate.domain.spec import TaskSpec
    from tidegate.policy.classify import classify
    from tidegate.policy.retry import RetryTerms, decide

    found = classify(
        one.error,
        now=time.time() if one.now is None else one.now,
        classifiers=classifiers,
        provider=provider or one.provider,
        longest_wait_seconds=float("inf"),
    )
    outcome = decide(
        Fence(str(one.id), 1), found.failure, None, RetryTerms.of(TaskSpec("")), Counters(), random.Random(0)
    )
    return _Classification(one.id, found.failure, outcome)


# --- files -----------------------------------------------------------------------------------------------


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
