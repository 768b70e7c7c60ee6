"""The check of words in names and prose."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "words.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["words"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


words = load()


def rules(**allowed: str) -> object:
    return words.Rules(
        names={("steward",): "maintenance", ("put", "off"): "postpone"},
        prose={"anew": "again"},
        allowed=[words.AllowedWord(word, where, "a reason") for word, where in allowed.items()],
    )


def found(place: str, source: str, **allowed: str) -> list[str]:
    return [str(finding) for finding in words.check_file(rules(**allowed), place, source)]


@pytest.mark.parametrize(
    "source",
    [
        "class StewardLoop: ...\n",
        "def run(steward): ...\n",
        "self.steward_task = 1\n",
        "from x import y as steward\n",
        "def put_off(): ...\n",
    ],
)
def test_a_replaced_word_in_a_python_name_is_found(source: str) -> None:
    assert len(found("src/a.py", source)) == 1


@pytest.mark.parametrize("source", ["def put_it_off(): ...\n", "stewardess = 1\n", "x = 'steward'\n"])
def test_other_names_and_plain_strings_are_not_found(source: str) -> None:
    assert found("src/a.py", source) == []


def test_a_replaced_word_in_a_file_name_is_found() -> None:
    assert len(found("src/steward.py", "")) == 1


def test_a_replaced_word_in_sql_is_found_outside_comments_and_literals() -> None:
    sql = "-- steward\nSELECT 'steward' AS held,\n    steward_id\nFROM task\n"
    assert [line.split(":")[1] for line in found("src/a.sql", sql)] == ["3"]


def test_a_coined_word_in_a_docstring_a_message_or_a_page_is_found_at_its_line() -> None:
    assert found("src/a.py", '"""First.\n\nStarts anew.\n"""\n')[0].startswith("src/a.py:3:")
    assert len(found("src/a.py", 'x = "it begins anew"\n')) == 1
    assert [line.split(":")[1] for line in found("docs/a.md", "a\n```\nanew\n```\nAnew, then.\n")] == ["5"]


def test_an_allowed_word_is_not_found_in_its_file() -> None:
    assert found("src/a.py", "steward = 1\n", steward="src/a.py") == []
    assert len(found("src/b.py", "steward = 1\n", steward="src/a.py")) == 1
