"""The examples are real: they import, and their functions do what they say without any worker."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

from tidegate import Context
from tidegate.context import RetryRequested
from tidegate.internals import core_of
from tidegate.testing.provider import POLICY_MARKER, SimulatedProvider

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS = sorted((EXAMPLES / "summarise" / "texts").glob("*.txt"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples make their queue in the working directory, if at all."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def example(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The module of the example that the test names."""
    name = f"example_{request.param}"
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / request.param / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


def named(directory: str) -> Any:
    return pytest.mark.parametrize("example", [directory], indirect=True)


PROGRAM_SECONDS = 240.0
"""An example that kills its worker starts many processes; on a busy machine each takes several seconds."""
PROGRAM = pytest.mark.timeout(PROGRAM_SECONDS + 30)


def run_example(name: str, *args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. If that takes too long, its workers are ended too."""
    command = [sys.executable, str(EXAMPLES / name), *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=PROGRAM_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing of it is left
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@named("quickstart")
async def test_quickstart_greets(example: ModuleType) -> None:
    assert await example.hello("Ada") == "hello Ada"
    assert list(core_of(example.app).functions) == ["example_quickstart:hello"]


# --- retries ----------------------------------------------------------------------------------------------


@named("retries")
async def test_the_shop_is_busy_at_first_and_its_retry_rules_apply(example: ModuleType) -> None:
    with pytest.raises(example.ShopBusyError):
        await example.fetch_order(7)
    with pytest.raises(example.NoSuchOrderError):
        await example.fetch_order(-1)
    busy, unknown_order = example.fetch_order.spec.rules
    assert (busy.retry, busy.attempts) == (True, 3)
    assert not unknown_order.retry


@named("retries")
async def test_waiting_for_the_export_asks_for_another_run(example: ModuleType) -> None:
    with pytest.raises(RetryRequested):
        await example.wait_for_export()
    assert await example.wait_for_export(ready_at_look=1) == "the export was ready at look 1"


@named("retries")
async def test_the_report_is_published_whole(example: ModuleType, tmp_path: Path) -> None:
    context = Context.detached()
    target = tmp_path / "report.txt"
    assert await example.write_report(context, str(target), lines=3) == str(target)
    assert target.read_text() == "line 1\nline 2\nline 3\n"
    assert list(context.scratch().iterdir()) == []


# --- summarise --------------------------------------------------------------------------------------------


@named("summarise")
async def test_a_text_is_summarised_and_a_refused_one_is_reported(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedProvider() as provider:
        monkeypatch.setenv("PROVIDER_URL", provider.url)
        await example.open_client()
        summary = await example.summarise(str(EXAMPLES / "summarise/texts/amber.txt"), words=30)
        with pytest.raises(httpx2.HTTPStatusError, match="400"):
            await example.summarise(str(EXAMPLES / "summarise/texts/moderation-sample-1.txt"))
        await example.close_client()
    assert summary.startswith("Amber is not a stone")
    assert [call.outcome for call in provider.ledger.calls()] == ["answered", "content_policy_violation"]


# --- openai_batch -----------------------------------------------------------------------------------------


@PROGRAM
def test_a_batch_goes_through_the_real_client_and_is_summarised_whole(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    ran = run_example("openai_batch.py", "10", env=env)
    assert ran.returncode == 0, ran.stderr
    assert "10 of 10 summarised: The tide came in at 0 o'clock." in ran.stdout
    assert "10 answered" in ran.stdout


@PROGRAM
def test_an_agent_loop_whose_worker_is_killed_twice_pays_each_call_once(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    ran = run_example("agent_loop.py", env=env | {"AGENT_FOLDER": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    assert "Delfzijl 7:40, Emden 8:40, Husum 9:40, Ribe 10:40, Thyborøn 11:40" in ran.stdout
    assert "3 runs, 6 calls paid, 0 of them twice" in ran.stdout


def test_the_texts_are_many_short_and_different() -> None:
    texts = [path.read_text("utf-8") for path in TEXTS]
    assert 25 <= len(texts) <= 40
    assert all(100 <= len(text.split()) <= 400 for text in texts)
    assert len({text.split(".")[0] for text in texts}) == len(texts)
    assert sum(POLICY_MARKER in text for text in texts) == 3


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/app.py")), ids=lambda path: path.parent.name)
def test_every_example_describes_how_to_run_it(path: Path) -> None:
    printed = path.read_text("utf-8").split('"""')[1]
    assert re.search(r"tidegate worker app:(app|queue)\b", printed)
    assert re.search(r"python app\.py|uvicorn app:site|flask --app app:site", printed)


# --- inside frameworks ------------------------------------------------------------------------------------


@named("fastapi_site")
async def test_the_fastapi_site_welcomes_and_its_page_follows(example: ModuleType) -> None:
    site = example.site
    transport = httpx2.ASGITransport(app=site)
    async with (
        site.router.lifespan_context(site),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        made = await client.post("/signup", json={"mail": "ada@example.com"})
        task_id = made.json()["task_id"]
        reported = await client.get(f"/tidegate/api/v1/tasks/{task_id}/events")
        assert '"data":"welcome, ada@example.com."' in reported.text
        assert "event: end" in reported.text
        assert (await client.get(f"/welcomed/{task_id}")).json() == {"state": "succeeded"}


@named("flask_site")
async def test_the_flask_site_accepts_a_picture_and_returns_its_location(example: ModuleType) -> None:
    def visit() -> None:
        client = example.site.test_client()
        made = client.post("/thumbnails", data={"picture": "ada.png"}, headers={"Idempotency-Key": "k"})
        again = client.post("/thumbnails", data={"picture": "ada.png"}, headers={"Idempotency-Key": "k"})
        assert made.status_code == 202
        assert again.headers["Location"] == made.headers["Location"]
        assert client.get(made.headers["Location"]).get_json()["state"] == "ready"

    await asyncio.to_thread(visit)
    assert example.thumbnail("a.png") == "a.png at 200 pixels"


def test_the_django_site_stores_its_report_when_the_transaction_commits(tmp_path: Path) -> None:
    script = (
        "import django; django.setup()\n"
        "from django.test import Client\n"
        "answer = Client().get('/report/2026')\n"
        "print(answer.status_code, Client().get(answer['Location']).json()['state'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ
        | {"DJANGO_SETTINGS_MODULE": "app"}
        | {"PYTHONPATH": os.pathsep.join([str(EXAMPLES / "django_site"), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "202 ready\n", done.stderr


# --- batch_api --------------------------------------------------------------------------------------------


@PROGRAM
def test_a_batch_whose_worker_is_killed_twice_is_submitted_once_and_its_expired_prompts_alone(
    tmp_path: Path,
) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    ran = run_example("batch_api.py", env=env)
    assert ran.returncode == 0, ran.stderr
    assert "30 answers, 2 batches, 0 prompts paid twice" in ran.stdout, ran.stdout
    assert "$0.030 instead of $0.060" in ran.stdout
    assert "job batch_2: done, submitted 2 times" in ran.stdout


# --- image_batch ------------------------------------------------------------------------------------------


@PROGRAM
def test_thirty_images_are_paid_once_each_but_for_the_calls_in_flight_at_two_kills(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    ran = run_example("image_batch.py", env=env)
    assert ran.returncode == 0, ran.stderr
    counts = re.search(r"30 images, (\d+) paid calls, (\d+) calls in doubt", ran.stdout)
    assert counts is not None, ran.stdout
    paid, doubts = map(int, counts.groups())
    assert 30 <= paid <= 30 + doubts
    assert doubts <= 2 * 3, "three calls are in flight at each kill"
    assert "each call that was paid twice is listed" in ran.stdout
