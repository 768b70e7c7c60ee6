"""Check code as users write it: the examples, `check_api.py`, and each Python block of the pages as it is shown.

`make lint` runs it: mypy --strict, and basedpyright at the level `standard`, which is what Pyright and Pylance use
unless told otherwise. Each block is written to a file of its own, at the line where it stands in its page, so that an
error names the page's line. Blocks of one page that name their file (`# app.py`) can be imported by the others.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))

from pages import PAGES, Block, blocks  # noqa: E402

OUT = ROOT / "build" / "types"
STUBS = ROOT / "tests" / "typing" / "stubs"
"""Types of libraries that the pages use and the development environment lacks."""
CHECKED = ("examples", "tests/typing/check_api.py")

PREAMBLES = {
    "docs/how-to/enqueue-from-web-frameworks.md": "from reports.views import enqueue_on_commit, report, transaction",
}
"""A line put above each block of a page that leaves out what a part of it needs: here the imports of the view."""
FILES: dict[str, dict[str, str]] = {
    "docs/how-to/debug-a-dead-task.md": {
        "app.py": """
from dataclasses import dataclass

from tidegate import Tidegate

app = Tidegate()

@dataclass
class Document:
    title: str
    meta: dict[str, list[str]]

@app.task
def tag(document: Document) -> list[str]: ...
"""
    },
    "docs/how-to/enqueue-from-web-frameworks.md": {
        "reports/__init__.py": "",
        "reports/models.py": """
class Report:
    year: int
    objects: Reports
    def render(self) -> str: ...
    def save(self) -> None: ...

class Reports:
    def for_year(self, year: int) -> Report: ...
""",
        # Django has no types of its own: what Pyright infers for `atomic` cannot be used in a `with`.
        "reports/views.py": """
from contextlib import AbstractContextManager
from reports.models import Report
from tidegate.integrations.django import enqueue_on_commit as enqueue_on_commit

class _Transaction:
    def atomic(self) -> AbstractContextManager[None]: ...

report: Report
transaction: _Transaction
""",
    },
}
"""Modules that the blocks of a page import and that no block shows. Their names end in .pyi once they are written."""


LEFT_OUT = ("--disable-error-code", "empty-body")
"""Pages write `...` for the body of a function that does not matter there."""


def page_name(page: Path) -> str:
    """Return the path of a page from the root."""
    return str(page.relative_to(ROOT))


def write_page(page: Path) -> Path | None:
    """Write the Python blocks of a page to a folder; return it, or None if there are none."""
    found = blocks(page, "python")
    if not found:
        return None
    stem = page_name(page).removesuffix(".md").replace("/", "_").replace(".", "_").replace("-", "_")
    folder = OUT / stem
    for name, text in FILES.get(page_name(page), {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}i").write_text(text)
    folder.mkdir(parents=True, exist_ok=True)
    last = {block.file: block for block in found}  # a page may change a file that it showed before
    for block in found:
        is_module = block.file is not None and last[block.file] is block
        name = block.file if is_module else f"{stem}_line_{block.line}.py"
        (folder / str(name)).write_text(at_its_line(block))
    return folder


def at_its_line(block: Block) -> str:
    """Return the text of a block with so many lines above it that each stands at its line of the page."""
    return PREAMBLES.get(page_name(block.page), "") + "\n" * (block.line - 1) + block.text


def mypy_runs(folders: list[Path]) -> Iterator[list[str]]:
    """Yield the arguments of each run of mypy: pages whose blocks import each other need one of their own."""
    alone = [folder for folder in folders if any("_line_" not in each.name for each in folder.iterdir())]
    others = [str(folder) for folder in folders if folder not in alone]
    yield [*LEFT_OUT, "--explicit-package-bases", *CHECKED, *others]
    for folder in alone:
        yield [*LEFT_OUT, str(folder)]


def run_mypy(folders: list[Path]) -> int:
    """Run mypy over everything; return the number of runs that found errors."""
    failed = 0
    for arguments in mypy_runs(folders):
        folder = arguments[-1]
        path = [str(STUBS), *([folder] if "--explicit-package-bases" not in arguments else [])]
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml", *arguments]
        environment = os.environ | {"MYPYPATH": os.pathsep.join(path)}
        failed += subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0
    return failed


def start_basedpyright(folders: list[Path]) -> subprocess.Popen[bytes]:
    """Start basedpyright over everything."""
    settings = {
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        "venvPath": str(ROOT),
        "venv": ".venv",
        "stubPath": str(STUBS),
        "reportMissingModuleSource": False,  # libraries that have a stub because they are not installed
        "include": [*(str(ROOT / part) for part in CHECKED), str(OUT)],
        "executionEnvironments": [{"root": str(folder)} for folder in folders],
    }
    config = OUT / "pyrightconfig.json"
    config.write_text(json.dumps(settings, indent=2))
    return subprocess.Popen([sys.executable, "-m", "basedpyright", "--project", str(config), "--warnings"])


def main() -> int:
    """Write the blocks and run both checkers; return the exit code."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    folders = [folder for page in PAGES if (folder := write_page(page)) is not None]
    pyright = start_basedpyright(folders)
    failed = run_mypy(folders)
    failed += pyright.wait() != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
