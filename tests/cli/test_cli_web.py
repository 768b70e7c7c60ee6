"""`tidegate tokens` and `tidegate web`."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from tidegate.domain.access import digest_of


def create(workspace, *options, code=0):
    return workspace.run("tokens", "create", "front", "--role", "submitter", *options, code=code)


def test_a_token_is_printed_once_and_only_its_digest_is_kept(workspace):
    token = create(workspace, "--tenant", "acme").stdout.strip()

    assert re.fullmatch(r"tg_[0-9a-f]{10}_[\w-]{43}", token)
    [row] = [json.loads(line) for line in workspace.run("tokens", "ls", "--json").stdout.splitlines()]
    assert (row["id"], row["role"], row["tenant"]) == (token.split("_")[1], "submitter", "acme")
    kept = b"".join(path.read_bytes() for path in workspace.database.parent.iterdir())
    assert token.split("_", 2)[2].encode() not in kept
    assert digest_of(token) in kept


def test_the_tenant_or_all_tenants_must_be_named(workspace):
    assert "--all-tenants" in create(workspace, code=2).stderr
    create(workspace, "--tenant", "a", "--all-tenants", code=2)
    create(workspace, "--tenant", "", code=2)
    assert json.loads(create(workspace, "--all-tenants", "--json").stdout)["tenant"] is None


def test_tokens_are_listed_with_their_state_and_revoked(workspace):
    token = create(workspace, "--all-tenants", "--expires", "30d").stdout.strip()
    token_id = token.split("_")[1]

    assert "valid until" in workspace.run("tokens", "ls").stdout
    assert workspace.run("tokens", "revoke", token_id, "nobody", code=3).stdout == (
        f"{token_id}  revoked\nnobody  unknown\n"
    )
    listed = workspace.run("tokens", "ls").stdout
    assert "revoked" in listed
    assert "(all)" in listed
    assert token not in listed


def test_an_address_other_than_loopback_needs_a_valid_token(workspace):
    for host in ("0.0.0.0", "192.0.2.1", "::"):
        refused = workspace.run("web", workspace.app, "--host", host, code=78)
        assert "tidegate tokens create" in refused.stderr
    token_id = create(workspace, "--all-tenants").stdout.split("_")[1]
    workspace.run("tokens", "revoke", token_id)
    workspace.run("web", workspace.app, "--host", "0.0.0.0", code=78)


def test_a_taken_port_is_reported(workspace):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = workspace.run("web", workspace.app, "--port", str(taken.getsockname()[1]), code=78)
    assert "--port" in refused.stderr


@contextlib.contextmanager
def serving(workspace, *options):
    """A `tidegate web` in a process of its own; its address, the process, and what it printed before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate.cli", "web", workspace.app, "--port", "0", *options],
        cwd=workspace.directory, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        printed = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", printed)):
            line = process.stderr.readline()
            assert line, printed
            printed += line
        yield found[0], process, printed
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


@pytest.fixture
def api(workspace):
    """A `tidegate web` that requests from this machine may use; its address and process."""
    with serving(workspace) as (url, process, _):
        yield url, process


def ask(url, data=None, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(url, body, named | {"Content-Type": "application/json"})
    ends_at = time.monotonic() + 15
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except urllib.error.URLError:
            assert time.monotonic() < ends_at
            time.sleep(0.05)


def test_it_serves_until_stopped_and_the_first_token_ends_open_access(workspace, api):
    url, process = api
    status, reported = ask(f"{url}/api/v1/tasks", {"task": "greet", "args": {"name": "Ada"}})
    assert status == 202
    assert ask(url + reported["location"])[1]["state"] == "ready"
    assert workspace.json("tasks", "show", reported["task_id"])["function"] == workspace.greet
    token = create(workspace, "--all-tenants").stdout.strip()
    ends_at = time.monotonic() + 15
    while ask(url + reported["location"])[0] != 401:
        assert time.monotonic() < ends_at
        time.sleep(0.1)
    assert ask(url + reported["location"], Authorization=f"Bearer {token}")[0] == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0


def test_a_response_on_a_kept_connection_is_not_delayed_by_the_system(api):
    url, _ = api
    ask(f"{url}/livez")
    seconds = []
    with contextlib.closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)) as kept:
        for _ in range(20):
            began_at = time.monotonic()
            kept.request("GET", "/livez")
            kept.getresponse().read()
            seconds.append(time.monotonic() - began_at)
    # Nagle's algorithm holds the body back until the client acknowledges the head, which takes 40 ms.
    assert min(seconds[5:]) < 0.03


def test_a_stop_ends_open_streams_whole_and_at_once(workspace, api):
    url, process = api
    _, reported = ask(f"{url}/api/v1/tasks", {"task": "greet", "args": {"name": "Ada"}})
    with urllib.request.urlopen(f"{url}{reported['location']}/events", timeout=20) as stream:
        assert stream.readline().startswith(b"retry:")
        process.send_signal(signal.SIGTERM)
        rest = stream.read()
    assert b"event: end" not in rest, "it is cut off in the middle, or told of an end"
    assert rest.endswith(b'event: closed\ndata: {"reason":"stopping"}\n\n')
    process.wait(15)
    assert process.stderr.read() == "", "it had to be cancelled after the grace time"


def test_a_public_name_requires_tokens_and_the_first_start_prints_one(workspace):
    with serving(workspace, "--host-name", "queue.example") as (url, _, printed):
        token = re.search(r"tg_[0-9a-f]{10}_[\w-]{43}", printed)[0]
        assert ask(f"{url}/api/v1/tasks")[0] == 401
        assert ask(f"{url}/api/v1/audit", Authorization=f"Bearer {token}")[0] == 200
    [row] = [json.loads(line) for line in workspace.run("tokens", "ls", "--json").stdout.splitlines()]
    assert (row["role"], row["tenant"]) == ("admin", None)
    with serving(workspace, "--origin", "https://app.example") as (url, _, printed):
        assert "tg_" not in printed
        assert ask(f"{url}/api/v1/tasks")[0] == 401


def test_pages_are_served_beside_the_api_and_the_project_is_not(workspace):
    site = workspace.directory / "site"
    site.mkdir()
    (site / "index.html").write_text("<h1>chat</h1>")
    with serving(workspace, "--pages", "site") as (url, process, _):
        assert "the pages of site are at" in process.stderr.readline()
        assert ask(f"{url}/api/v1/tasks")[0] == 200
        with urllib.request.urlopen(f"{url}/", timeout=10) as answer:
            assert answer.read() == b"<h1>chat</h1>"
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    refused = workspace.run("web", workspace.app, "--pages", ".", code=78)
    assert "everybody could read" in refused.stderr


def test_a_request_with_a_forwarding_header_is_refused_where_no_token_exists(workspace, api):
    url, _ = api
    assert ask(f"{url}/api/v1/audit")[0] == 200
    assert ask(f"{url}/api/v1/audit", X_Forwarded_For="203.0.113.9")[0] == 401


def test_a_client_or_worker_loads_no_web_framework():
    code = (
        "import sys, tidegate.cli.web, tidegate.cli.tokens, tidegate.worker.engine.engine, tidegate.app, tidegate.context;"
        "sys.exit(any(name in sys.modules for name in ('fastapi', 'starlette', 'uvicorn', 'pydantic')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
