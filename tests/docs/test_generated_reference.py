"""The pages of the reference that are made from the code are current and complete."""

from __future__ import annotations

import re

import pytest
from pages import ROOT
from tools.reference import python_api
from tools.reference.__main__ import pages
from tools.reference.markdown import from_docstring, replace_part, table

import tidegate
import tidegate.testing

PAGES = pages()


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_a_generated_page_is_what_the_code_says_now(path):
    assert (ROOT / path).read_text(encoding="utf-8") == PAGES[path](), "run `make reference`"


def test_every_public_name_is_on_one_page_of_the_python_reference():
    names = [name for subject in python_api.subjects().values() for name in subject.names]

    assert sorted(names) == sorted({*tidegate.__all__, *tidegate.testing.__all__} - {"__version__"})


def test_every_public_method_of_the_application_has_its_heading():
    methods = [name for name in dir(tidegate.Tidegate("sqlite:///never-opened.db")) if name[0] != "_"]

    headings = re.findall(r"^### Tidegate\.(\w+)$", python_api.page("application"), re.M)
    assert sorted(headings) == sorted(methods)


def test_a_docstring_becomes_paragraphs_lists_and_code():
    docstring = """Store a task.

    It is committed
    when this returns.

    Args:
        key: Its key,
            once only.
        labels: For people.

    Raises:
        StoreError: Not stored.

    Example:
        >>> await f.enqueue(1)  # doctest: +SKIP
    """

    assert from_docstring(docstring) == (
        "Store a task.\n\n"
        "It is committed when this returns.\n\n"
        "Parameters:\n\n- `key`: Its key, once only.\n- `labels`: For people.\n\n"
        "Raises:\n\n- `StoreError`: Not stored.\n\n"
        "```py\nawait f.enqueue(1)\n```"
    )


def test_a_table_keeps_bars_inside_its_cells_and_drops_empty_columns_at_its_end():
    assert table(["a", "b"], [("x | y", ""), ("z", "")]) == "| a |\n|---|\n| x \\| y |\n| z |"


def test_a_page_without_the_place_for_a_generated_part_is_refused():
    with pytest.raises(ValueError, match="0 parts named pools"):
        replace_part("# Page\n", "pools", "x")
