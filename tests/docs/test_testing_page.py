"""The page on testing: its tests are run by pytest, as its readers would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "test-your-tasks.md"


@pytest.mark.timeout(120)
def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    named = {block.file: block.text for block in blocks(PAGE, "python") if block.file}
    assert len(named) == len(blocks(PAGE, "python")), "each block names its file"
    for name, text in named.items():
        (tmp_path / name).write_text(text)
    (toml,) = blocks(PAGE, "toml")
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
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def _without_entry_point() -> list[str]:
    """Return options that load the plugin once, whether the installed package has its entry point or not."""
    return ["-p", "no:tidegate"]
