"""`docs/README.md` lists every page of the documentation once, under the heading of its folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import PAGES, ROOT

DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
HEADINGS = {
    "tutorial": "Tutorial",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
}
_ENTRY = re.compile(r"^- \[[^\]]+\]\((?P<target>[\w./-]+\.md)\): .+$", re.M)


def _listed() -> dict[str, list[Path]]:
    """Return the pages that each part of the index lists, by its heading."""
    heading, *parts = re.split(r"^## (.+)$", INDEX.read_text(encoding="utf-8"), flags=re.M)
    assert heading.startswith("# ")
    return {
        name: [(DOCS / found["target"]).resolve() for found in _ENTRY.finditer(part)]
        for name, part in zip(parts[::2], parts[1::2], strict=True)
    }


def test_the_index_has_the_four_kinds_of_pages_in_order():
    assert list(_listed()) == list(HEADINGS.values())


def test_the_index_lists_every_page_once():
    listed = [page for pages in _listed().values() for page in pages]

    assert sorted(listed) == [page for page in PAGES if page.is_relative_to(DOCS) and page != INDEX]


@pytest.mark.parametrize("folder", HEADINGS)
def test_each_page_of_a_folder_is_listed_under_the_heading_of_its_folder(folder):
    pages = {page for page in PAGES if page.parent == DOCS / folder}

    assert pages <= set(_listed()[HEADINGS[folder]])
