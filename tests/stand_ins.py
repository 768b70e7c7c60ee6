"""Exceptions built from the descriptions in `data/provider_cases.jsonl`, so that no SDK is needed."""

import json
from pathlib import Path

from tidegate.cli.failure_description import describe_failure

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "provider_cases.jsonl").read_text("utf-8").splitlines()
]
NOW = 1_793_620_800.0
"""2026-11-02T12:00:00Z, the moment of every case."""


def cases(kind):
    return [case for case in CASES if case["kind"] == kind]


def header_list(case):
    headers = case["headers"]
    return [tuple(pair) for pair in headers] if isinstance(headers, list) else list(headers.items())


def exception_of(case):
    """Build what a task would raise in this case."""
    return describe_failure(case).error


def complaint(case, failure, *, bound=float("inf")):
    """Return what is wrong with the verdict on a case, or an empty text. Expected waits are cut to `bound`."""
    expect = case["expect"]
    verdicts = [expect["verdict"], *expect.get("verdict_ok", ())]
    reasons = [expect["reason"], *expect.get("reason_ok", ())]
    if failure.verdict not in verdicts:
        return f"{failure.verdict} instead of {verdicts}"
    if failure.reason not in reasons:
        return f"{failure.reason} instead of {reasons}"
    if failure.verdict == "permanent":
        return "" if failure.wait_seconds is None else "a permanent failure with a wait"
    return wait_complaint(expect, failure.wait_seconds, bound=bound)


def wait_complaint(expect, wait, *, bound=float("inf")):
    """Return what is wrong with a wait, or an empty text. Expected waits are cut to `bound`."""
    waits = [expect["wait_s"], *expect.get("wait_ok", ())]
    if wait is None:
        return "" if None in waits else f"no wait instead of {waits}"
    if "wait_min_s" in expect and expect["wait_min_s"] <= wait <= expect["wait_max_s"]:
        return ""
    numbers = [min(number, bound) for number in waits if number is not None]
    if any(abs(wait - number) <= max(0.01, 1e-6 * number) for number in numbers):
        return ""
    return f"wait {wait} instead of {waits}"
