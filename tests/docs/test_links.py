"""Every link between the project's pages and files leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import PAGES, ROOT, prose

_LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\\.)*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(?P<text>.+?) *$", re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page):
    targets = [found["target"] for found in _LINK.finditer(prose(page))]

    broken = [target for target in targets if "://" not in target and not _leads_somewhere(page, target)]

    assert broken == []


def test_the_pages_have_links_at_all():
    assert sum(len(_LINK.findall(prose(page))) for page in PAGES) > 50


def test_the_claim_the_retry_decision_and_the_state_table_are_one_click_from_the_readme():
    targets = {found["target"] for found in _LINK.finditer(prose(ROOT / "README.md"))}

    assert {
        "src/tidegate/store/sqlite/claim.py",
        "src/tidegate/store/sqlite/sql/claim.sql",
        "src/tidegate/policy/retry.py",
        "src/tidegate/domain/states.py",
    } <= targets


def test_every_page_can_be_reached_from_the_readme():
    reached: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached:
            continue
        reached.add(page)
        for found in _LINK.finditer(prose(page)):
            target = (page.parent / found["target"].partition("#")[0]).resolve()
            if target.suffix == ".md" and target in PAGES:
                todo.append(target)

    assert set(PAGES) - reached == set()


def _leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists() or not file.is_relative_to(ROOT):
        return False
    return not anchor or (file.suffix == ".md" and anchor in _anchors(file))


def _anchors(page: Path) -> set[str]:
    """Return the anchors that code hosts make of a page's headings."""
    headings = [found["text"] for found in _HEADING.finditer(prose(page))]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
