"""The tutorial and the how-to pages, done literally: files saved, commands typed, output compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT
from sessions import Session

HOW_TO = ROOT / "docs" / "how-to"
PAGES = [
    HOW_TO / f"{name}.md"
    for name in ("make-a-task-safe-to-repeat", "move-off-celery", "use-several-keys", "write-tasks")
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_the_page_shows_can_be_done_in_an_empty_directory(page: Path, tmp_path: Path) -> None:
    directory = tmp_path / "empty"
    directory.mkdir()

    with Session(directory) as session:
        session.do(page)
