"""Turns docstrings and lists of facts into Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Collection, Iterable, Sequence

_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Example|Examples|Attributes|Note):$")
_ITEM = re.compile(r"^(\*{0,2}\w[\w.]*): (.*)$")
_TITLES = {"Args": "Parameters", "Yields": "Yields", "Raises": "Raises", "Returns": "Returns"}


def from_docstring(text: str, *, without: Collection[str] = ()) -> str:
    """Return a Google-style docstring as Markdown: its sections become lists and code blocks.

    Args:
        text: The docstring.
        without: Sections to leave out.
    """
    parts: list[str] = []
    title, lines = "", list[str]()
    for line in [*inspect.cleandoc(text).splitlines(), None]:
        found = _SECTION.match(line) if line is not None else None
        if line is not None and found is None:
            lines.append(line)
            continue
        if title not in without and any(each.strip() for each in lines):
            parts.append(_section(title, textwrap.dedent("\n".join(lines)).strip("\n")))
        title, lines = (found[1] if found else ""), []
    return "\n\n".join(parts)


def _section(title: str, text: str) -> str:
    if title.startswith("Example"):
        code = re.sub(r" *# doctest: \+\w+", "", re.sub(r"^(?:>>>|\.\.\.) ?", "", text, flags=re.M))
        return f"```py\n{code}\n```"
    if title in ("Args", "Raises", "Attributes"):
        return f"{_TITLES.get(title, title)}:\n\n" + "\n".join(_items(text))
    joined = paragraphs(text)
    return f"{_TITLES[title]}: {joined}" if title in _TITLES else joined


def paragraphs(text: str) -> str:
    """Return text with each paragraph in one line; indented parts and lists keep their lines."""
    done = []
    for part in re.split(r"\n\s*\n", text):
        is_laid_out = re.search(r"^(?: {2,}|[-*] |\d+\. )", part, re.M)
        done.append(part if is_laid_out else " ".join(part.split()))
    return "\n\n".join(done)


def _items(text: str) -> Iterable[str]:
    """Yield a list item for each `name: what it is` of a section."""
    item = ""
    for line in text.splitlines():
        found = None if line.startswith(" ") else _ITEM.match(line)
        if found:
            if item:
                yield item
            item = f"- `{found[1]}`: {found[2]}"
        else:
            item += " " + line.strip()
    if item:
        yield item


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without the columns at its end that are empty; line ends in a cell become spaces."""
    rows = [list(row) for row in rows]
    while rows and not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = (" ".join(cell.replace("|", "\\|").split()) for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def anchor(heading: str) -> str:
    """Return the anchor that code hosts make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def replace_part(text: str, name: str, part: str) -> str:
    """Replace what a page has between the comments `generated: NAME` and `end of generated`.

    Raises:
        ValueError: The page has no such comments.
    """
    pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(\n<!-- end of generated -->)", re.S)
    replaced, found = pattern.subn(lambda match: f"{match[1]}\n{part}\n{match[2]}", text)
    if found != 1:
        raise ValueError(f"the page has {found} parts named {name}")
    return replaced
