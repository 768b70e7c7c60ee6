"""What the pages show can be done: Python runs, commands exist with their options."""

from __future__ import annotations

import re
import shlex
import sys

import pytest
from known_commands import require_known
from pages import PAGES, ROOT, Block, blocks, commands

from tidegate.config import load_config

PYTHON = [block for page in PAGES for block in blocks(page, "python")]
TOML = [block for page in PAGES for block in blocks(page, "toml")]
LINES = sorted({line for page in PAGES for line in commands(page)})
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_every_python_snippet_compiles(block: Block):
    compile(block.text, block.name, "exec")


@pytest.mark.parametrize(
    "block",
    [block for block in PYTHON if block.file is None and not block.note.startswith("not run")],
    ids=lambda block: block.name,
)
def test_every_python_snippet_runs(block: Block, tmp_path, monkeypatch):
    files = {other.file: other.text for other in blocks(block.page, "python") if other.file}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    modules = [name.removesuffix(".py") for name in files]

    try:
        # A name of its own, so that declared functions are not those of `__main__`.
        exec(compile(block.text, block.name, "exec"), {"__name__": "snippet"})
    finally:
        for module in modules:
            sys.modules.pop(module, None)


@pytest.mark.parametrize("block", TOML, ids=lambda block: block.name)
def test_every_settings_file_on_the_pages_is_valid(block: Block, tmp_path):
    name = "pyproject.toml" if block.text.startswith("[tool.") else "tidegate.toml"
    (tmp_path / name).write_text(block.text)

    load_config(tmp_path, {})


@pytest.mark.parametrize("line", [line for line in LINES if "tidegate " in line])
def test_every_command_on_the_pages_exists_with_its_options(line: str):
    for part in re.split(r" *(?:&&|[&;|]) *", line):
        words = shlex.split(part)
        if words[:1] == ["tidegate"]:
            require_known(words[1:], line)


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make ")])
def test_every_make_target_on_the_pages_exists(line: str):
    assert shlex.split(line)[1] in TARGETS
