"""`tidegate classify`: one answer by options, file or pipe, and files of many."""

from __future__ import annotations

import json

import pytest

from stand_ins import CASES, complaint
from tidegate.domain.failure import Failure

CASES_FILE = "cases.jsonl"


def write(workspace, text, name=CASES_FILE):
    data = text if isinstance(text, bytes) else text.encode()
    (workspace.directory / name).write_bytes(data)


def printed(result):
    return [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]


def test_every_failure_in_a_file_is_classified_in_order(empty):
    write(empty, "".join(json.dumps(case) + "\n" for case in CASES))

    answers = printed(empty.run("classify", "--jsonl", CASES_FILE))

    assert [answer["id"] for answer in answers] == [case["id"] for case in CASES]
    for case, answer in zip(CASES, answers, strict=True):
        assert set(answer) == {"id", "verdict", "reason", "wait_s", "action"}
        failure = Failure(answer["verdict"], answer["reason"], wait_seconds=answer["wait_s"])
        assert complaint(case, failure) == "", case["id"]


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ({"status": 429, "headers": {"Retry-After": "3"}}, "park"),
        ({"status": 529}, "park"),
        ({"status": 500}, "retry"),
        ({"exception": "acme.Odd"}, "retry"),
        ({"status": 400}, "dead"),
        ({"status": 429, "body": {"error": {"code": "insufficient_quota"}}}, "dead"),
    ],
    ids=str,
)
def test_the_action_is_what_a_worker_would_do(empty, answer, action):
    write(empty, json.dumps(answer))

    assert printed(empty.run("classify", "--jsonl", CASES_FILE))[0]["action"] == action


def test_a_bad_line_is_named_with_file_and_line_and_nothing_else_is_lost(empty):
    lines = [
        b'{"id": "first", "status": 429}',
        b"{",
        b"",
        b'"text"',
        b'{"id": "no status"}',
        b'{"status": 42}',
        b'{"status": 500, "headers": 7}',
        b'{"status": 500, "now": "soon"}',
        b'{"status": 500, "provider": 7}',
        b'{"status": NaN}',
        b"\xff\xfe",
        b'{"exception": "a.B", "mro": ["builtins.exec"]}',
        b'{"exception": "a.B", "mro": ["builtins.ExceptionGroup"]}',
        b'{"exception": "a.\\u0000"}',
        b'{"exception": "a.B", "attrs": 7}',
        b'{"exception": "a.B", "cause": "c"}',
        b"[" * 100_000,
        b'{"id": "last", "status": 503}',
    ]
    write(empty, b"\n".join(lines))

    result = empty.run("classify", "--jsonl", CASES_FILE, code=1)

    assert [answer["id"] for answer in printed(result)] == ["first", "last"]
    reported = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    bad = [number for number, line in enumerate(lines, 1) if number not in (1, 3, len(lines))]
    assert [line.split(": ")[1] for line in reported] == [f"{CASES_FILE}:{number}" for number in bad]
    assert f"{len(bad)} lines of {CASES_FILE} could not be read" in result.stderr


def test_a_line_without_an_id_is_named_by_its_number(empty):
    write(empty, '{"status": 500}\n{"id": 7, "status": 500}\n')

    assert [answer["id"] for answer in printed(empty.run("classify", "--jsonl", CASES_FILE))] == ["1", 7]


def test_a_missing_file_is_wrong_usage(empty):
    assert "cannot read none.jsonl" in empty.run("classify", "--jsonl", "none.jsonl", code=2).stderr


def test_one_response_by_options_is_printed_as_text_and_as_json(empty):
    args = ["--status", "429", "--header", "Retry-After: 7", "--body", '{"error": {"code": "slow_down"}}']

    shown = empty.run("classify", *args).stdout
    assert "verdict  transient" in shown
    assert "wait     7 s" in shown
    assert "action   park: rate_limit: waits" in shown
    assert "because  code slow_down" in shown
    assert empty.json("classify", *args) == {
        "id": "",
        "verdict": "transient",
        "reason": "rate_limit",
        "wait_s": 7.0,
        "action": "park",
    }


def test_the_provider_decides_what_a_number_means(empty):
    reasons = [
        empty.json("classify", "--status", "498", "--provider", provider)["reason"]
        for provider in ("groq", "cohere", "acme")
    ]

    assert reasons == ["overloaded", "auth", "unknown"]


CURL = (
    "HTTP/1.1 100 Continue\r\n\r\n"
    "HTTP/2 429\r\ncontent-type: application/json\r\nretry-after: 12\r\n\r\n"
    '{"error": {"code": "rate_limit_exceeded"}}'
)


@pytest.mark.parametrize("text", [CURL, '{"status": 429, "headers": {"Retry-After": "12"}}'])
def test_an_answer_is_read_from_a_file(empty, text):
    write(empty, text, "answer.txt")

    answer = empty.json("classify", "answer.txt")
    assert (answer["reason"], answer["wait_s"]) == ("rate_limit", 12.0)


def test_a_body_is_read_from_a_file(empty):
    write(empty, '{"error": {"code": "insufficient_quota"}}', "body.json")

    assert empty.json("classify", "--status", "429", "--body", "@body.json")["reason"] == "quota"


@pytest.mark.parametrize("text", ["", "nonsense", "HTTP/1.1 what\n\n", "HTTP/1.1 429\nno header\n\n", "{"])
def test_a_file_without_a_response_is_an_error(empty, text):
    write(empty, text, "answer.txt")

    assert empty.run("classify", "answer.txt", code=1).stderr.startswith("Error: ")


@pytest.mark.parametrize(
    "args",
    [
        ["--status", "429", "--jsonl", "x"],
        ["answer.txt", "--status", "429"],
        ["--body", "x", "answer.txt"],
        ["--status", "42"],
    ],
)
def test_ways_that_exclude_each_other_are_wrong_usage(empty, args):
    assert empty.run("classify", *args, code=2).stdout == ""


def test_an_applications_classifiers_are_asked_first(empty):
    (empty.directory / "teaching.py").write_text(
        "from tidegate import Failure, Reason, Tidegate, Verdict\n"
        "app = Tidegate()\n"
        "@app.classifier\n"
        "def full(error):\n"
        "    if getattr(error.response, 'status_code', 0) == 418:\n"
        "        return Failure(Verdict.TRANSIENT, Reason.OVERLOADED, wait_seconds=30)\n"
    )

    answer = empty.json("classify", "--status", "418", "--app", "teaching:app")
    assert answer == {
        "id": "",
        "verdict": "transient",
        "reason": "overloaded",
        "wait_s": 30.0,
        "action": "park",
    }


def test_a_wait_above_the_cap_is_printed_as_the_provider_asked(empty):
    answer = empty.json("classify", "--status", "429", "--header", "Retry-After: 1000000")

    assert answer["wait_s"] == 1_000_000.0
