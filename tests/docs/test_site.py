"""The documentation site, built by `make docs` and opened in Chromium."""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import threading
from collections.abc import Iterator

import pytest
from pages import ROOT
from tools.docs_site.check import problems

from chromium import Page

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(900)]

SITE = ROOT / "build" / "docs" / "html"
PHONE = 390


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the site, built and served for the tests of this module."""
    built = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    handler = functools.partial(_Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="site")
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _pages() -> list[str]:
    return sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))


def test_the_built_site_has_every_page_and_no_broken_link(site):
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    expected = {str(path.with_suffix(".html")) for path in sources} - {"README.html"} | {"index.html"}

    assert expected <= set(_pages())
    assert problems(SITE) == []


async def test_no_page_is_wider_than_a_phone_or_logs_an_error(site, page: Page):
    await page.set_size(PHONE, 844)
    too_wide = {}
    for name in _pages():
        await page.open(f"{site}/{name}")
        width = await page.run("document.documentElement.scrollWidth")
        if width > PHONE:
            too_wide[name] = width

    assert too_wide == {}
    assert page.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_the_site_follows_the_colours_of_the_system(site, page: Page, dark):
    await page.set_size(1280, 900, dark=dark)
    await page.open(f"{site}/index.html")

    background = await page.run("getComputedStyle(document.body).backgroundColor")

    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == dark, background


async def test_the_search_finds_a_page_by_a_word_in_it(site, page: Page):
    await page.open(f"{site}/search.html?q=fencing")

    await page.until("document.querySelector('#search-results li a')")

    assert "Guarantees" in await page.run("document.querySelector('#search-results').innerText")
