"""Reading the project's pages: which there are, and what stands in their code blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_COMMAND = re.compile(r"^\$ (?P<command>.+?)(?:\s+#.*)?$", re.M)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    """Of its first line of text, from 1."""
    language: str
    text: str
    note: str
    """What an HTML comment right above it says."""

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file it is the content of, named by a comment in its first line or by the note above it."""
        if self.note.startswith("file: "):
            return self.note.removeprefix("file: ")
        first = self.text.partition("\n")[0]
        return first.removeprefix("# ") if re.fullmatch(r"# [\w/.-]+\.(py|toml)", first) else None


def blocks(page: Path, language: str) -> list[Block]:
    return [block for block in all_blocks(page) if block.language == language]


def all_blocks(page: Path) -> list[Block]:
    """Return every fenced block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start("text")) + 1,
            language=found["language"],
            text=found["text"],
            note=found["note"] or "",
        )
        for found in _FENCE.finditer(text)
    ]


def commands(page: Path) -> list[str]:
    """Return what follows `$ ` in the console blocks of a page, comments cut off."""
    return [found["command"] for block in blocks(page, "console") for found in _COMMAND.finditer(block.text)]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def table_rows(page: Path, *, under: str) -> list[list[str]]:
    """Return the cells of every table row between the heading `under` and the next heading of its level."""
    text = page.read_text(encoding="utf-8")
    level = under.partition(" ")[0]
    part = re.split(rf"^{level} ", text.split(f"\n{under}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    rows = [line.strip().strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if not set("".join(row)) <= set("- :")]
