"""Check the built site: links and anchors lead somewhere, and nothing is loaded from another host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {
    ("link", "href"),
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("use", "href"),
}
_CSS_URL = re.compile(r"@import\s+[\"']([^\"']+)|url\(\s*[\"']?([^\"')]+)")


@dataclass
class _Page(HTMLParser):
    """The ids and links of one HTML page."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value)
            if tag == "a" and name == "href":
                self.links.append(value)
            elif (tag, name) in _LOADED:
                self.loaded.append(value)


def problems(site: Path) -> list[str]:
    """Return a line for each fault of the site in a folder."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for url in page.loaded:
            found += [f"{name}: {problem}" for problem in _loading(path, url)]
        for url in page.links:
            found += [f"{name}: {problem}" for problem in _link(path, url, pages)]
    for path in sorted(site.rglob("*.css")):
        for imported, used in _CSS_URL.findall(path.read_text(encoding="utf-8")):
            found += [f"{path.relative_to(site)}: {each}" for each in _loading(path, imported or used)]
    return found


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _loading(path: Path, url: str) -> Iterator[str]:
    """Yield what is wrong with a URL that a browser loads by itself."""
    parts = urlsplit(url)
    if parts.scheme == "data" or url.startswith("#"):
        return
    if parts.scheme or parts.netloc:
        yield f"loads {url} from another host"
    elif not _file(path, parts.path).exists():
        yield f"loads {url}, which does not exist"


def _link(path: Path, url: str, pages: dict[Path, _Page]) -> Iterator[str]:
    """Yield what is wrong with a link that a reader may follow."""
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return
    file = _file(path, parts.path)
    if not file.exists():
        yield f"links to {url}, which does not exist"
    elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].ids:
        yield f"links to {url}, and that page has no such anchor"


def _file(path: Path, relative: str) -> Path:
    """Return the file that a relative URL names; a folder stands for its index."""
    file = (path.parent / unquote(relative)).resolve() if relative else path
    return file / "index.html" if file.is_dir() else file
