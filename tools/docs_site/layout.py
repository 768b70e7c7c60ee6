"""Lay out the pages for the site: `docs/` at its root, and a page for each other file that a page links to.

The pages link to each other and to source files by their paths in the project. Here each link gets the path
on the site instead, so that no link leaves the site or leads nowhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INDEX = "docs/README.md"

# Fences and code spans are matched first, so that a link inside code stays as it is.
_LINK_END = re.compile(
    r"(?P<code>^(?P<fence>`{3,}).*?^(?P=fence) *$|`[^`\n]+`)|\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)",
    re.M | re.S,
)
_HEADING = re.compile(r"^## (?P<text>.+)$", re.M)
_ENTRY = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<path>[\w./-]+\.md)\)", re.M)
_PROJECT = {
    "README": "README.md",
    "README (中文)": "README.zh.md",
    "Changelog": "CHANGELOG.md",
    "Contributing": "CONTRIBUTING.md",
}
_LANGUAGES = {".py": "python", ".sql": "postgresql", ".toml": "toml", ".js": "js", ".html": "html"}


@dataclass
class Layout:
    """The pages of the site, and what they link to.

    Args:
        root: The project's folder.
        out: Where to write the pages.
    """

    root: Path
    out: Path
    written: dict[str, str] = field(default_factory=dict)
    """The path on the site of each path in the project."""
    broken: list[str] = field(default_factory=list)
    """A line for each link to a file that does not exist."""

    def write(self) -> None:
        """Write every page under `docs/`, and everything that they link to."""
        todo = [str(page.relative_to(self.root)) for page in sorted(self.root.glob("docs/**/*.md"))]
        while todo:
            path = todo.pop()
            if path in self.written:
                continue
            self.written[path] = place_on_site(path, is_folder=(self.root / path).is_dir())
            text, linked = self._page(path)
            target = self.out / self.written[path]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            todo.extend(linked)

    def _page(self, path: str) -> tuple[str, list[str]]:
        """Return the text of a page on the site, and the paths that it links to."""
        file = self.root / path
        if file.is_dir():
            return self._folder_page(path)
        text = file.read_text(encoding="utf-8")
        if file.suffix != ".md":
            return source_page(path, text), []
        linked: list[str] = []
        body = _LINK_END.sub(lambda found: self._link(path, found, linked), text)
        if path == INDEX:
            body += "".join(table_of_contents(text))
        elif not path.startswith("docs/") and "/" in path:
            body = f"---\norphan: true\n---\n\n{body}"
        return body, linked

    def _link(self, page: str, found: re.Match[str], linked: list[str]) -> str:
        if found["code"] is not None:
            return found[0]
        target = os.path.normpath(Path(page).parent / found["path"])
        if target.startswith("..") or not (self.root / target).exists():
            self.broken.append(f"{page}: {found['path']} does not exist")
            return found[0]
        linked.append(target)
        place = place_on_site(target, is_folder=(self.root / target).is_dir())
        here = Path(place_on_site(page, is_folder=False)).parent
        return f"]({os.path.relpath(place, here)}{found['anchor'] or ''})"

    def _folder_page(self, path: str) -> tuple[str, list[str]]:
        files = sorted(each for each in (self.root / path).iterdir() if each.name.endswith((".py", ".md")))
        names = [each.relative_to(self.root).as_posix() for each in files if each.name != "__init__.py"]
        here = Path(place_on_site(path, is_folder=True)).parent
        lines = [
            f"- [{name}]({os.path.relpath(place_on_site(name, is_folder=False), here)})\n" for name in names
        ]
        return f"---\norphan: true\nnosearch: true\n---\n\n# {path}/\n\n{''.join(lines)}", names


def place_on_site(path: str, *, is_folder: bool) -> str:
    """Return where the page for a path of the project is on the site."""
    if path == INDEX:
        return "index.md"
    if is_folder:
        return f"source/{path}/index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if not path.endswith(".md"):
        return f"source/{path}.md"
    return path.removesuffix(".md").lower().replace(".", "-") + ".md"


def source_page(path: str, text: str) -> str:
    """Return a page that shows a source file. The search leaves it out."""
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    language = _LANGUAGES.get(Path(path).suffix, "text")
    return (
        f"---\norphan: true\nnosearch: true\n---\n\n# {path}\n\n"
        f"{fence}{{code-block}} {language}\n:linenos:\n\n{text}\n{fence}\n"
    )


def table_of_contents(index: str) -> Iterator[str]:
    """Yield the navigation of the site: a part for each heading of the index, and the pages it lists."""
    _, *parts = _HEADING.split(index)
    for heading, part in zip(parts[::2], parts[1::2], strict=True):
        pages = {found["title"]: f"docs/{found['path']}" for found in _ENTRY.finditer(part)}
        if pages:
            yield _toctree(heading, pages)
    yield _toctree("Project", _PROJECT)


def _toctree(caption: str, pages: dict[str, str]) -> str:
    lines = [
        f"{title} <{place_on_site(path, is_folder=False).removesuffix('.md')}>"
        for title, path in pages.items()
    ]
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(lines) + "\n```\n"
