"""Tasks that nothing will run are told of: at their enqueue, when a worker starts, and by `doctor`."""

from __future__ import annotations

import asyncio
import logging
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support import make_app
from tidegate import ConfigError, Pool, Tidegate
from tidegate.internals import core_of
from tidegate.store.worker_rows import NewWorker
from tidegate.worker.application import load_application
from tidegate.worker.supervisor.manifest import read_manifest
from tidegate.worker.supervisor.unserved import unserved_reasons, warn_of_unserved

WORKER = "0193a7d2-0000-7000-8000-00000000000a"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tidegate]:
    app = make_app(tmp_path, pools=[Pool(queues=["default"])])

    @app.task(name="app:quick")
    async def quick() -> None: ...

    @app.task(name="app:slow", queue="llm")
    async def slow() -> None: ...

    yield app
    await app.aclose()


async def add_worker(app: Tidegate, *queues: str, functions: tuple[str, ...]) -> None:
    """Make a live worker known that serves these queues and declares these functions."""
    store = await core_of(app).opened_store()
    await store.save_manifest("app:app", {"functions": {name: {} for name in functions}})
    await store.add_worker(
        NewWorker(
            WORKER, "w", "p", "host", 1, queues, 5, lease_seconds=30.0, version="0", application="app:app"
        )
    )


async def test_an_enqueue_that_nothing_serves_is_warned_of_once(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    await add_worker(app, "default", functions=("app:quick", "app:slow"))
    for _ in range(3):
        await core_of(app).functions["app:slow"].enqueue()
        await core_of(app).functions["app:quick"].enqueue()

    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.startswith("tasks of app:slow wait: nothing serves the queue llm")
    assert "tidegate.toml" in warning


async def test_a_function_that_no_worker_knows_is_warned_of_with_the_setting_that_helps(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    await add_worker(app, "*", functions=("app:quick",))

    @app.task(name="jobs:report")
    async def report() -> None: ...

    await app.enqueue_many([report.prepare(), core_of(app).functions["app:quick"].prepare()])

    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "declares the function jobs:report" in warning
    assert 'modules = ["jobs"]' in warning


async def test_before_any_worker_the_configured_pools_count(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    await core_of(app).functions["app:quick"].enqueue()
    assert not caplog.records
    await asyncio.to_thread(core_of(app).functions["app:slow"].enqueue_sync)
    assert "nothing serves the queue llm" in caplog.text


async def test_a_failing_check_for_unserved_tasks_does_not_fail_the_enqueue(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise OSError("away")

    monkeypatch.setattr(core_of(app).store, "list_workers", fail)

    assert (await core_of(app).functions["app:slow"].enqueue()).created
    assert not caplog.records


async def test_a_starting_worker_names_unserved_tasks_and_functions(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="jobs:report")
    async def report() -> None: ...

    await report.using(queue="default").enqueue()
    functions = {
        name: {"queue": core_of(app).functions[name].spec.queue} for name in ("app:quick", "app:slow")
    }
    caplog.clear()

    await warn_of_unserved(core_of(app).store, core_of(app).pools, functions)

    stored, declared = [record.getMessage() for record in caplog.records]
    assert stored.startswith("tasks of jobs:report wait: no live worker that serves default declares")
    assert declared.startswith("tasks of app:slow would wait: nothing serves the queue llm")
    everything = [Pool(queues=["*"])]
    assert (
        await unserved_reasons(core_of(app).store, everything, functions | {"jobs:report": {"queue": "x"}})
        == []
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an application and, beside it, a module with tasks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = {
        "unserved_app.py": "from tidegate import Tidegate\napp = Tidegate()\n",
        "unserved_jobs.py": """
            from unserved_app import app
            @app.task
            async def report(): ...
        """,
    }
    for name, text in names.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


async def test_a_worker_of_a_module_that_does_not_exist_gets_one_line_without_a_traceback(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="the application misspelt:app cannot be loaded"):
        await read_manifest("misspelt:app")

    assert capfd.readouterr().err.splitlines() == [
        "TG200 there is no module 'misspelt' here → run in the application's directory, or name it MODULE:APP"
    ]


async def test_a_worker_whose_application_imports_a_missing_module_gets_its_traceback(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "longname.py").write_text("import long\n")  # a name that the application's begins with
    with pytest.raises(ConfigError):
        await read_manifest("longname:app")

    shown = capfd.readouterr().err
    assert "import long" in shown
    assert "longname cannot be imported: No module named 'long'" in shown


def test_modules_of_the_configuration_are_imported_with_the_application(project: Path) -> None:
    (project / "tidegate.toml").write_text('app = "unserved_app:app"\nmodules = ["unserved_jobs"]\n')

    assert list(core_of(load_application("unserved_app:app")).functions) == ["unserved_jobs:report"]
