"""The pages that show tests: pytest runs them, as their readers would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, blocks

HOW_TO = ROOT / "docs" / "how-to"
PAGES = {"test-your-tasks": 6, "fall-back-to-another-provider": 3, "suspend": 1, "approvals": 2}
"""The pages, and how many tests each of them shows."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", PAGES)
def test_the_tests_on_the_page_pass(name: str, tmp_path: Path) -> None:
    page = HOW_TO / f"{name}.md"
    named = {block.file: block.text for block in blocks(page, "python") if block.file}
    assert len(named) == len(blocks(page, "python")), "each block names its file"
    for file, text in named.items():
        (tmp_path / file).write_text(text)
    for toml in blocks(page, "toml"):
        (tmp_path / "pyproject.toml").write_text(toml.text)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tidegate.testing.pytest_plugin",
            *_without_entry_point(),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "OPENAI_API_KEY": "not-a-key"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{PAGES[name]} passed" in done.stdout


def _without_entry_point() -> list[str]:
    """Return options that load the plugin once, whether the installed package has its entry point or not."""
    return ["-p", "no:tidegate"]
