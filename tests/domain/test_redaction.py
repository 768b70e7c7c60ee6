"""What the redactor replaces in text and what it keeps."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.core.scan import scan_line
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.settings import default_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from canaries import CANARIES
from tidegate.domain.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT
from tidegate.domain.redaction import redact
from tidegate.domain.text import redacted_text
from tidegate.policy.describe import traceback_of

HARMLESS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "harmless_texts.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("shape", CANARIES)
def test_a_secret_is_replaced_and_the_words_around_it_stay(shape: str) -> None:
    text, secret = CANARIES[shape]
    shown = redact(text)
    assert "***" in shown
    for part in secret.splitlines():
        assert part not in shown
    assert shown[:4] == text[:4]
    assert redact(shown) == shown


@pytest.mark.parametrize("before", ["upstream said: ", "{'error': '", "\n\t", "«", "(", "错误:"])
@pytest.mark.parametrize("after", [" (see the docs)", "'}", "\n", "»", "。"])
def test_a_secret_is_found_at_any_place(before: str, after: str) -> None:
    for text, secret in CANARIES.values():
        for part in secret.splitlines():
            assert part not in redact(before + text + after)


def test_at_most_one_in_a_hundred_harmless_texts_is_changed() -> None:
    changed = [text for text in HARMLESS if redact(text) != text]
    assert len(HARMLESS) >= 200
    assert len(changed) <= len(HARMLESS) / 100, changed


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@host:5432/db", "postgresql://ann:***@host:5432/db"),
        ("postgresql://:s3cret@host/db", "postgresql://:***@host/db"),
        (
            "postgresql://host/db?user=ann&password=s3cret&x=1",
            "postgresql://host/db?user=ann&password=***&x=1",
        ),
        ("cannot reach 'postgresql://ann:s3cret@host/db'", "cannot reach 'postgresql://ann:***@host/db'"),
        ("sqlite:///.tidegate/tidegate.db", "sqlite:///.tidegate/tidegate.db"),
        ("https://host/path:80/x@y", "https://host/path:80/x@y"),
    ],
)
def test_only_the_secret_in_a_url_is_replaced(url: str, shown: str) -> None:
    assert redact(url) == shown


def _detectors() -> list[tuple[str, re.Pattern[str]]]:
    """The patterns of detect-secrets that describe a whole secret in its usual writing."""
    with default_settings():
        kinds = get_mapping_from_secret_type_to_class()
    left_out = {
        *("Public IP (ipv4)", "Private Key"),  # no secret; and its first line alone
        # one vendor's names, in writings that no language has: unpaired quotes, no sign between
        *("Cloudant Credentials", "IBM COS HMAC Credentials", "IBM Cloud IAM Key", "SoftLayer Credentials"),
    }
    patterns = [
        (name, re.compile(pattern.pattern, pattern.flags & ~re.IGNORECASE))
        for name, kind in sorted(kinds.items())
        if issubclass(kind, RegexBasedDetector) and name not in left_out
        for pattern in kind.denylist
    ]
    return [(name, pattern) for name, pattern in patterns if not _is_vague(pattern.pattern)]


def _is_vague(pattern: str) -> bool:
    """Whether it finds any 10 characters after two letters, or any text around a name."""
    return "AP[" in pattern or ".{0,20}" in pattern


@pytest.mark.parametrize(("kind", "pattern"), _detectors())
def test_secrets_that_detect_secrets_finds_are_replaced(kind: str, pattern: re.Pattern[str]) -> None:
    rng = random.Random(kind)
    for _ in range(30):
        text = _example(_parser.parse(pattern.pattern, pattern.flags), rng)
        found = pattern.search(text)
        assert found is not None, text
        parts = [part for part in (*reversed(found.groups()), found[0]) if part and len(part) >= 16]
        if parts and len(set(parts[0])) > 8:  # nobody's key is the same few letters again and again
            assert parts[0] not in redact(text)


def _example(nodes: Any, rng: random.Random) -> str:
    """Return a text that a parsed pattern matches, of letters and digits where it leaves a choice."""
    return "".join(_one(str(kind), value, rng) for kind, value in nodes)


def _one(kind: str, value: Any, rng: random.Random) -> str:
    if kind == "LITERAL":
        return chr(value)
    if kind == "IN":
        fitting = re.compile("[" + "".join(_member(*item) for item in value) + "]")
        return rng.choice([char for char in _USUAL if fitting.fullmatch(char)] or [" "])
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, nodes = value
        return "".join(_example(nodes, rng) for _ in range(rng.randint(least, min(int(most), least + 8))))
    if kind == "SUBPATTERN":
        return _example(value[3], rng)
    if kind == "BRANCH":
        return _example(rng.choice(value[1]), rng)
    return rng.choice(_USUAL) if kind in ("ANY", "NOT_LITERAL") else ""


def _member(kind: Any, value: Any) -> str:
    if str(kind) == "RANGE":
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    if str(kind) == "CATEGORY":
        return {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w", "CATEGORY_SPACE": r"\s"}[str(value)]
    return "^" if str(kind) == "NEGATE" else re.escape(chr(value))


_USUAL = string.ascii_letters + string.digits + "_-+/= :"
_BITS = [*"://@=&?-_.,;:'\"\\()[]{}<>+/ \n", "key", "token", "password", "secret", "Bearer ", "sk-", "eyJ", "AKIA",
         "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "cookie", "authorization", "a", "aA1", "é"]  # fmt: skip


@given(st.lists(st.sampled_from(_BITS), max_size=40).map("".join))
@settings(max_examples=300, deadline=None, database=None)
def test_redacted_text_is_not_changed_again(text: str) -> None:
    shown = redact(text)
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        '"refresh_token": "' + "aB3x" * 400 + '"',
        '"password": "it\'s-aB3xpa55"',
        r'"password": "a\"b-aB3xpa55"',
        "postgresql://user:" + "aB3x" * 100 + "@host/db",
    ],
)
def test_a_long_secret_or_one_with_a_quote_inside_is_replaced_whole(text: str) -> None:
    assert "aB3x" not in redact(text)


def test_a_sentence_about_a_cookie_stays() -> None:
    text = "invalid cookie: the session has expired, sign in"
    assert redact(text) == text


@pytest.mark.parametrize(
    "bit",
    [
        *_BITS,
        "://a:",
        "key=",
        "password:",
        "?a",
        "eyJaaaaaa.",
        "A/+9",
        " -u a:",
        "1:AA",
        "sk_",
        "pk-",
        "eyJ-",
    ],
)
def test_the_time_to_redact_grows_only_with_the_length(bit: str) -> None:
    """A pattern that backtracks without bound would take minutes here: the test's own time limit would end it."""
    redact((bit * 50_000)[:50_000])


@pytest.mark.parametrize("shape", ["jwt", "pem", "openai", "azure storage", "url query key"])
def test_a_secret_that_is_split_by_a_cut_is_replaced(shape: str) -> None:
    text, secret = CANARIES[shape]
    for room in range(8, len(text), 7):
        message = "." * (MESSAGE_LIMIT - room) + " " + text + "." * MESSAGE_LIMIT
        shown = redacted_text(message, MESSAGE_LIMIT)
        assert len(shown) <= MESSAGE_LIMIT
        assert secret[4:16] not in shown
        traceback = traceback_of(
            ValueError("." * (TRACEBACK_LIMIT // 2 - room - 60) + " " + text + "." * TRACEBACK_LIMIT)
        )
        assert secret[4:16] not in traceback


def test_the_content_of_a_private_key_is_found_without_its_beginning() -> None:
    rng = random.Random(1)
    lines = [base64.b64encode(rng.randbytes(48)).decode() for _ in range(20)]
    shown = redact("\n".join(lines) + "\n-----END RSA PRIVATE KEY-----\nthat was it")
    assert not any(line in shown for line in lines)
    assert shown.endswith("that was it")


def test_detect_secrets_has_the_expected_patterns() -> None:
    with default_settings():
        found = {secret.type for secret in scan_line("AKIA" + "ABCDEFGHIJ012345")}
    assert "AWS Access Key" in found
