"""The layout of the pages for the documentation site, and the check of the built site."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.docs_site.check import problems
from tools.docs_site.layout import ROOT, Layout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with an index, one page and one source file."""
    (tmp_path / "docs/how-to").mkdir(parents=True)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text('"""Three ticks: ```."""\n')
    (tmp_path / "docs/README.md").write_text("# Docs\n\n## How-to guides\n\n- [Sail](how-to/sail.md): far.\n")
    (tmp_path / "docs/how-to/sail.md").write_text("# Sail\n\nSee [`a.py`](../../src/a.py).\n")
    for name in ("README.md", "README.zh.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("# Page\n")
    return tmp_path


def laid_out(project: Path) -> Layout:
    layout = Layout(project, project / "out")
    layout.write()
    return layout


def test_a_link_to_a_source_file_leads_to_a_page_that_shows_it(project):
    laid_out(project)

    assert "See [`a.py`](../source/src/a.py.md)." in (project / "out/how-to/sail.md").read_text()
    shown = (project / "out/source/src/a.py.md").read_text()
    assert "````{code-block} python" in shown
    assert '"""Three ticks: ```."""' in shown


def test_the_navigation_has_the_parts_and_titles_of_the_index(project):
    laid_out(project)

    index = (project / "out/index.md").read_text()
    assert "```{toctree}\n:hidden:\n:caption: How-to guides\n\nSail <how-to/sail>\n```" in index


def test_links_inside_code_stay_as_they_are(project):
    page = project / "docs/how-to/sail.md"
    page.write_text("# Sail\n\n```text\n[a](../../src/a.py)\n```\n\nWrite `[a](../../src/a.py)`.\n")

    laid_out(project)

    assert (project / "out/how-to/sail.md").read_text() == page.read_text()


def test_a_link_to_a_file_that_does_not_exist_is_reported(project):
    (project / "docs/how-to/sail.md").write_text("# Sail\n\n[gone](../gone.md)\n")

    assert laid_out(project).broken == ["docs/how-to/sail.md: ../gone.md does not exist"]


def test_every_link_of_our_own_pages_has_a_place_on_the_site(tmp_path):
    layout = Layout(ROOT, tmp_path)

    layout.write()

    assert layout.broken == []
    assert {"docs/architecture.md", "README.md", "src/tidegate/policy/retry.py"} <= set(layout.written)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="b.html#here">b</a>', None),
        ('<a href="https://example.com/">elsewhere</a>', None),
        ('<a href="#top">top</a>', "a.html: links to #top, and that page has no such anchor"),
        (
            '<a href="b.html#there">b</a>',
            "a.html: links to b.html#there, and that page has no such anchor",
        ),
        ('<a href="c.html">c</a>', "a.html: links to c.html, which does not exist"),
        (
            '<link rel="stylesheet" href="https://fonts.example/x.css">',
            "a.html: loads https://fonts.example/x.css from another host",
        ),
        (
            '<script src="//cdn.example/x.js"></script>',
            "a.html: loads //cdn.example/x.js from another host",
        ),
        ('<img src="x.png">', "a.html: loads x.png, which does not exist"),
    ],
)
def test_the_check_reports_what_leads_nowhere_or_to_another_host(tmp_path, body, problem):
    (tmp_path / "a.html").write_text(f"<html><body>{body}</body></html>")
    (tmp_path / "b.html").write_text('<html><body><p id="here"></p></body></html>')

    assert problems(tmp_path) == ([problem] if problem else [])


def test_the_check_reports_a_font_that_a_style_sheet_loads_from_another_host(tmp_path):
    (tmp_path / "a.css").write_text('@font-face { src: url("https://fonts.example/a.woff2") }')

    assert problems(tmp_path) == ["a.css: loads https://fonts.example/a.woff2 from another host"]
