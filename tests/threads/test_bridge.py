"""Sync methods are refused, with what to change, in a process whose threads are none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask

from support import make_app
from tidegate import ConfigError, Tidegate
from tidegate.integrations.flask import init_app


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Tidegate]:
    app = make_app(tmp_path)

    @app.task(name="bridge:add")
    def add(a: int) -> int:
        return a

    yield app
    app.close()


def gevent(*patched: str) -> dict[str, Any]:
    return {"gevent.monkey": SimpleNamespace(is_module_patched=lambda name: name in patched)}


def eventlet(*patched: str) -> dict[str, Any]:
    return {"eventlet.patcher": SimpleNamespace(is_monkey_patched=lambda name: name in patched)}


def uwsgi(**options: Any) -> dict[str, Any]:
    return {"uwsgi": SimpleNamespace(opt={name.replace("_", "-"): value for name, value in options.items()})}


@pytest.mark.parametrize(
    ("modules", "fix"),
    [
        (gevent("threading", "select", "socket"), "gthread"),
        (gevent("select"), "gthread"),  # monkey.patch_all(thread=False)
        (eventlet("thread"), "gthread"),
        (uwsgi(http=b":8000"), "--enable-threads"),
    ],
    ids=["gevent", "gevent without threads", "eventlet", "uwsgi"],
)
def test_a_server_without_real_threads_is_refused_with_the_setting_that_helps(
    queue: Tidegate, monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any], fix: str
) -> None:
    from tidegate.integrations.django import use_django

    with monkeypatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        for use in (
            lambda: init_app(Flask("site"), queue),
            lambda: use_django(queue),
            lambda: queue.function("bridge:add").enqueue_sync(1),
            lambda: queue.status_sync("x"),
        ):
            with pytest.raises(ConfigError, match=fix):
                use()


@pytest.mark.parametrize(
    "modules",
    [gevent("socket"), eventlet(), uwsgi(enable_threads=True), uwsgi(threads=b"4")],
    ids=["gevent for sockets", "eventlet unused", "uwsgi with threads enabled", "uwsgi with threads"],
)
def test_a_server_with_real_threads_is_served(
    queue: Tidegate, monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any]
) -> None:
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    init_app(Flask("site"), queue)
    for number in range(3):
        task = queue.function("bridge:add").enqueue_sync(number)
        assert queue.status_sync(task.id).state.value == "ready"


def test_async_code_needs_no_threads_of_its_own(queue: Tidegate, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in gevent("threading", "select").items():
        monkeypatch.setitem(sys.modules, name, module)
    assert asyncio.run(queue.function("bridge:add").enqueue(1)).created


def test_a_sync_call_while_the_interpreter_ends_is_refused(tmp_path: Path) -> None:
    program = """
from tidegate import Tidegate
app = Tidegate("sqlite:///queue.db")
@app.task(name="t")
def t(): ...
t.enqueue_sync()
class Late:
    def __del__(self, enqueue=t.enqueue_sync):
        try:
            enqueue()
        except Exception as error:
            print(type(error).__name__, error, flush=True)
import builtins
builtins.late = Late()
"""
    script = tmp_path / "late.py"
    script.write_text(program)
    ran = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert "UsageError" in ran.stdout, ran
    assert "while the interpreter shuts down" in ran.stdout
