"""The check of types over what users write, which `make lint` runs: it must see each block, and find errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "typing"))

import check_types  # noqa: E402
from check_types import PAGES, blocks  # noqa: E402


def test_every_python_block_of_the_pages_is_checked_at_the_line_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_types, "OUT", tmp_path)
    for page in PAGES:
        check_types.write_page(page)
    written = [path.read_text().splitlines() for path in tmp_path.rglob("*.py")]
    shown = [block for page in PAGES for block in blocks(page, "python")]
    assert len(written) == len(shown) > 20
    for block in shown:
        first = block.text.splitlines()[0]
        assert any(len(lines) >= block.line and lines[block.line - 1] == first for lines in written), (
            block.name
        )


@pytest.mark.slow  # mypy reads the clients' libraries too, where it has no cache of them yet
def test_a_wrong_call_on_a_page_is_found_and_named_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nfrom tidegate import Tidegate\n\nTidegate().worker(1)\n```\n")
    monkeypatch.setattr(check_types, "OUT", tmp_path / "types")
    monkeypatch.setattr(check_types, "ROOT", tmp_path)
    folder = check_types.write_page(page)
    assert folder is not None
    monkeypatch.setattr(check_types, "ROOT", ROOT)
    monkeypatch.setattr(check_types, "CHECKED", ())
    assert check_types.run_mypy([folder]) == 1
    assert "page_line_4.py:6: error: Too many positional arguments" in capfd.readouterr().out
