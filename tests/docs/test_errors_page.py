"""`docs/reference/errors.md` has every error that the code can raise, and no other."""

from __future__ import annotations

import re

import pytest
from pages import ROOT

from tidegate import errors
from tidegate.errors import TidegateError

PAGE = ROOT / "docs" / "reference" / "errors.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (TG\d+)\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S))
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TidegateError)]


def test_no_two_errors_share_a_code():
    codes = [kind.__dict__.get("code") for kind in KINDS]

    assert None not in codes
    assert len(set(codes)) == len(codes)


def test_the_page_has_exactly_the_codes_of_the_code_in_order():
    assert list(SECTIONS) == sorted(kind.code for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_each_section_names_its_class_and_a_way_out(kind):
    section = SECTIONS[kind.code]

    assert f"`{kind.__name__}`" in section
    assert "**Fix**" in section or kind is TidegateError or "`tidegate tasks show ID`" in section


def test_the_table_of_attributes_has_those_that_each_class_declares():
    table = TEXT.partition("## Attributes")[2].partition("## TG000")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.M))
    written = {name: set(re.findall(r"`(\w+)`", row)) - {"enqueue_many"} for name, row in rows.items()}
    declared = {kind.__name__: set(vars(kind).get("__annotations__", ())) for kind in KINDS}

    assert written == {name: fields for name, fields in declared.items() if fields}


def test_the_tree_in_the_modules_docstring_is_the_tree_of_classes():
    drawn = re.findall(r"(\w+Error)\b", (errors.__doc__ or "").partition("A task raises")[0])

    assert set(drawn) == {kind.__name__ for kind in KINDS}


def test_the_example_on_the_page_has_the_form_of_an_error():
    error = errors.KeyConflictError(
        "the key 'invoice-7' already names a task with other arguments",
        fix="use another key, or the same arguments",
    )

    assert f"\n{error}\n" in TEXT
