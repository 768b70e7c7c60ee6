"""Static pages beside the API: its paths come first, nothing hidden is shown, no other site frames them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from web_support import declare

from tidegate import ConfigError, Tidegate
from tidegate.web import WebSettings, create_app
from tidegate.web.pages import Pages, require_servable

pytestmark = pytest.mark.anyio


@pytest.fixture
def site(tmp_path: Path) -> Path:
    directory = tmp_path / "site"
    for name, content in {
        "index.html": "<h1>chat</h1>",
        "app.js": "start()",
        "docs/index.html": "<h1>docs</h1>",
        ".env": "SECRET",
        ".git/config": "SECRET",
        "docs/.htpasswd": "SECRET",
        "livez": "not the API's",
        "api/v1/tasks": "not the API's",
    }.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (tmp_path / "outside.txt").write_text("SECRET")
    (directory / "out.txt").symlink_to(tmp_path / "outside.txt")
    return directory


@pytest.fixture
async def client(app: Tidegate, site: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without a token of an API that asks for one."""
    declare(app)
    settings = WebSettings(hosts=("queue.example",))
    asgi = Pages(create_app(app, settings=settings), site, settings)
    transport = httpx2.ASGITransport(app=asgi, client=("203.0.113.9", 50_000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://queue.example") as made:
        yield made


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("/", "<h1>chat</h1>", "text/html"),
        ("/app.js", "start()", "javascript"),
        ("/docs/", "<h1>docs</h1>", "html"),
    ],
)
async def test_a_page_is_served_to_everybody(
    client: httpx2.AsyncClient, path: str, text: str, kind: str
) -> None:
    answer = await client.get(path, headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, answer.text) == (200, text)
    assert kind in answer.headers["content-type"]
    assert (await client.get(path, headers={"If-None-Match": answer.headers["etag"]})).status_code == 304


async def test_the_paths_of_the_api_come_first(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/livez")).json() == {"status": "alive"}
    for path in ("/api/v1/tasks", "/api/v1/nothing", "/api/none.html"):
        answer = await client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert (await client.post("/app.js")).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/.env", "/.git/config", "/docs/.htpasswd", "/out.txt", "/../outside.txt", "/%2e%2e/outside.txt",
        "/docs/..%2f..%2foutside.txt", "//etc/passwd", "/%00", "/x" + "y" * 5_000, "/docs/%2eenv", "/nothing.html",
    ],
)  # fmt: skip
async def test_hidden_outside_and_missing_files_are_not_found(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    assert "SECRET" not in answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize("path", ["/", "/app.js", "/nothing"])
async def test_every_answer_forbids_frames_and_guesses_of_its_type(
    client: httpx2.AsyncClient, path: str
) -> None:
    headers = (await client.get(path)).headers
    assert "frame-ancestors 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


async def test_a_page_of_another_host_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/", headers={"Host": "rebound.example"})
    assert answer.status_code == 421


async def test_a_missing_page_is_the_sites_own_404_page(client: httpx2.AsyncClient, site: Path) -> None:
    (site / "404.html").write_text("lost")
    answer = await client.get("/nothing")
    assert (answer.status_code, answer.text) == (404, "lost")


async def test_without_an_index_the_start_page_describes_the_api(
    client: httpx2.AsyncClient, site: Path
) -> None:
    (site / "index.html").unlink()
    assert "HTTP API of a task queue" in (await client.get("/")).text


@pytest.mark.parametrize("name", ["tidegate.toml", "pyproject.toml"])
def test_a_directory_that_holds_the_project_is_refused(site: Path, name: str) -> None:
    require_servable(site, None)
    (site / name).touch()
    with pytest.raises(ConfigError, match=name):
        require_servable(site, None)


def test_a_directory_that_holds_the_database_is_refused(site: Path, tmp_path: Path) -> None:
    require_servable(site, tmp_path / "queue.db")
    with pytest.raises(ConfigError, match=r"queue\.db"):
        require_servable(site, site / "data" / "queue.db")
    with pytest.raises(ConfigError, match="no directory"):
        require_servable(site / "none", None)
