"""What a provider answered to a failed call, made again from the history of the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stand_ins import NOW, cases, header_list
from tidegate.domain.failure import MESSAGE_LIMIT, Failure
from tidegate.domain.text import redacted_text
from tidegate.operations.recorded_answer import RecordedAnswer, recorded_answer
from tidegate.providers.understand import understand_answer
from tidegate.store.rows import HistoryRow


def failed(message: str, *, status: int | None = 400, **fields: Any) -> HistoryRow:
    return HistoryRow("run", 0.0, run=1, message=message, status=status, **fields)


def test_a_body_that_the_error_quotes_is_taken_from_it() -> None:
    text = "model refused: Error code: 400 - {'error': {'message': 'no', 'code': None}}"
    answer = recorded_answer(failed(text, request_id="req_1"))
    assert answer == RecordedAnswer(400, {"error": {"message": "no", "code": None}}, "req_1", is_quoted=True)


def test_a_message_that_the_error_quotes_becomes_the_message_of_a_body() -> None:
    answer = recorded_answer(failed("Error code: 400 - no such model", code="model"))
    assert answer == RecordedAnswer(
        400, {"error": {"message": "no such model", "code": "model"}}, is_quoted=True
    )


@pytest.mark.parametrize(
    "message",
    [
        "Client error '400 Bad Request' for url 'https://x'",
        "Error code: 429 - {'error': 'of another call'}",
        "Error code: 400 - {'error': {'message': 'cut in the mid",
        "Error code: 400 - {'error': {'code': '***'}}",
        "Error code: 400 - {'a': open('/etc/passwd')}",
    ],
)
def test_otherwise_a_body_is_made_of_the_text_and_the_code(message: str) -> None:
    answer = recorded_answer(failed(message, code="c"))
    assert answer == RecordedAnswer(400, {"error": {"message": message, "code": "c"}})


@pytest.mark.parametrize(
    ("reason", "error"), [("timeout", "timeout"), ("network", "connection")], ids=["timeout", "network"]
)
def test_without_an_answer_its_absence_is_recorded(reason: str, error: str) -> None:
    assert recorded_answer(failed("x", status=None, reason=reason)) == RecordedAnswer(error=error)


def test_an_error_of_the_code_has_no_answer() -> None:
    assert recorded_answer(failed("'tags'", status=None, reason="unknown")) is None


def quoting(case: dict[str, Any], failure: Failure) -> str:
    return f"Error code: {case['status']} - {case['body']!r}"


def plain(case: dict[str, Any], failure: Failure) -> str:
    return failure.message


@pytest.mark.parametrize("text", [quoting, plain])
def test_nearly_every_answer_of_a_provider_means_the_same_when_it_is_made_again(
    text: Callable[[dict[str, Any], Failure], str],
) -> None:
    same = []
    for case in cases("http"):
        provider = case["provider"]
        was = understand_answer(
            case["status"], header_list(case), case.get("body"), now=NOW, provider=provider
        )
        if was is None or was.status is None:
            continue
        message = redacted_text(text(case, was), MESSAGE_LIMIT)
        answer = recorded_answer(failed(message, status=was.status, reason=was.reason, code=was.code))
        assert answer is not None
        now = understand_answer(answer.status, [], answer.body, now=NOW, provider=provider)
        same.append(now is not None and now.reason == was.reason)
    assert len(same) > 200
    assert sum(same) / len(same) >= 0.95
