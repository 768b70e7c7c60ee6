"""The log lines of Tidegate's own processes, and log pipes that nobody reads."""

from __future__ import annotations

import fcntl
import importlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from canaries import CANARIES
from support import APPS, all_final, load_app
from tidegate import State
from tidegate.worker.log_formatters import (
    JsonFormatter,
    LibraryRecordsFilter,
    TaskFieldsFilter,
    TextFormatter,
)
from tidegate.worker.log_writer import MAX_LINES, LogLineWriter

pytestmark = pytest.mark.anyio


def record(
    message: str, *args: Any, name: str = "shop", level: int = logging.INFO, **fields: Any
) -> logging.LogRecord:
    made = logging.LogRecord(name, level, __file__, 1, message, args, fields.pop("exc_info", None))
    vars(made).update(fields)
    return made


def small_pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    return reading, writing


def all_of(reading: int) -> list[bytes]:
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().splitlines()


# --- the writer ------------------------------------------------------------------------------------------


def test_unread_log_lines_are_dropped_and_counted() -> None:
    reading, writing = small_pipe()
    writer = LogLineWriter(writing, dropped=lambda count: b"dropped %d\n" % count)
    put = 3 * MAX_LINES
    for number in range(put):
        writer.put(b"%d\n" % number)
    writer.close(0.01)  # returns although nobody reads
    found: list[list[bytes]] = []
    reader = threading.Thread(target=lambda: found.append(all_of(reading)))
    reader.start()
    writer.close(10)
    writer.put(b"again\n")
    writer.close(10)
    os.close(writing)
    reader.join(10)
    lines = found[0]
    dropped = sum(int(line.split()[1]) for line in lines if line.startswith(b"dropped"))
    numbers = [int(line) for line in lines if line.isdigit()]
    assert dropped > 0
    assert len(numbers) + dropped == put
    assert numbers == sorted(numbers)
    assert b"again" in lines


def test_a_patient_log_writer_waits_only_once_for_a_slow_reader() -> None:
    reading, writing = small_pipe()
    writer = LogLineWriter(writing, dropped=lambda count: b"", patience=0.2)
    writer.put(b"x\n")
    assert os.read(reading, 100) == b"x\n"  # written before `put` returned
    waits = []
    writer._wait = lambda seconds, wait=writer._wait: waits.append(seconds) or wait(seconds)
    for _ in range(200):
        writer.put(b"y" * 200 + b"\n")
    assert waits.count(0.2) < 40  # while the pipe filled, and once more
    os.close(reading)
    writer.close(5)
    os.close(writing)


@pytest.mark.parametrize("how", ["closed", "nobody can read it"])
def test_a_failing_descriptor_loses_only_log_lines(how: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    if how == "closed":
        os.close(writing)
    writer = LogLineWriter(writing, dropped=lambda count: b"")
    writer.put(b"x\n")
    writer.close(5)
    if how != "closed":
        os.close(writing)


def test_a_forked_child_writes_its_lines_itself() -> None:
    code = (
        "import os\n"
        "from tidegate.worker.logs import set_up_logging\n"
        "import logging\n"
        "set_up_logging()\n"
        "logging.getLogger('tidegate').warning('parent')\n"
        "if os.fork() == 0:\n"
        "    logging.getLogger('tidegate').warning('child')\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert re.findall(r"\] (\w+)$", done.stderr, re.MULTILINE) in (["parent", "child"], ["child", "parent"])


# --- the lines -------------------------------------------------------------------------------------------


def test_control_characters_in_log_messages_are_escaped() -> None:
    forged = "oops\n2026-11-30T00:00:00+00:00 ERROR   tidegate[1] all is lost \x1b[31m\x9b\u202e\r\x00"
    try:
        raise ValueError(forged)
    except ValueError:
        shown = TextFormatter().format(record("%s", forged, exc_info=sys.exc_info()))
    before_write, *rest = shown.split("\n")
    assert r"oops\n2026-11-30" in before_write
    assert r"\x1b[31m\x9b\u202e\r\x00" in before_write
    assert len(rest) > 3
    assert all(line.startswith("    ") for line in rest)
    assert all(char.isprintable() for char in shown.replace("\n", ""))


def test_a_log_line_has_a_timestamp_with_utc_offset() -> None:
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.match(moment + r" INFO    shop\[\d+\] hello$", TextFormatter().format(record("hello")))
    assert re.fullmatch(moment, json.loads(JsonFormatter().format(record("hello")))["time"])


@pytest.mark.parametrize("lines", [TextFormatter(), JsonFormatter()])
def test_a_log_line_contains_no_secret(lines: logging.Formatter) -> None:
    for text, secret in CANARIES.values():
        try:
            raise ValueError(text)
        except ValueError:
            shown = lines.format(record("it failed: %s", text, exc_info=sys.exc_info()))
        for part in secret.splitlines():
            assert part not in shown


def test_a_json_line_has_the_fields_of_the_task() -> None:
    one = record("%s \ud800", "a\nb", task_id="t", run=2, queue="llm")
    fields = json.loads(JsonFormatter().format(one))
    assert {name: fields[name] for name in ("level", "logger", "message", "task_id", "run", "queue")} == {
        "level": "INFO", "logger": "shop", "message": "a\nb \\ud800", "task_id": "t", "run": 2, "queue": "llm",
    }  # fmt: skip


def test_a_log_call_with_wrong_arguments_is_still_logged() -> None:
    assert "'%d cats'" in TextFormatter().format(record("%d cats", "no"))


def test_a_field_set_by_the_application_is_kept() -> None:
    one = record("x", task_id="mine")
    TaskFieldsFilter().filter(one)
    assert (one.task_id, one.run) == ("mine", None)  # type: ignore[attr-defined]


def test_libraries_log_from_warning_and_the_application_from_info() -> None:
    importlib.import_module("httpx2")
    only = LibraryRecordsFilter()
    try:
        assert not only.filter(record("HTTP Request: POST", name="httpx2"))
        assert logging.getLogger("httpx2").level == logging.WARNING  # the next record is not even created
        assert only.filter(record("x", name="httpx2", level=logging.WARNING))
        assert only.filter(record("x", name="tidegate.worker"))
        assert only.filter(record("x", name="shop.orders"))
        only.own.add("asyncio")
        assert only.filter(record("x", name="asyncio"))
    finally:
        logging.getLogger("httpx2").setLevel(logging.NOTSET)


# --- a worker --------------------------------------------------------------------------------------------


class Worker:
    """`tidegate worker` whose output is a pipe of 4 KiB, and whose parent blocked the signal that stops it."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.reading, writing = small_pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidegate.cli", "worker", "logging_app:app", *options],
            cwd=APPS,
            env=os.environ
            | {
                "TIDEGATE_DATABASE_URL": f"sqlite:///{directory}/queue.db",
                "TIDEGATE_SCRATCH": str(directory / "scratch"),
                "TIDEGATE_RUN": str(directory / "run"),
            },
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD}),
        )
        os.close(writing)

    def log(self) -> list[str]:
        return [line.decode() for line in all_of(self.reading)]


async def test_an_unread_log_pipe_does_not_affect_tasks_restarts_or_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = load_app("logging_app", tmp_path, monkeypatch)
    functions = [client.fails, client.fails_in_a_child]
    ids = [(await functions[number % 40 == 0].enqueue("x" * 300)).id for number in range(80)]
    worker = Worker(tmp_path)
    try:
        rows = await all_final(client.app, ids, within=40)
        assert {(row.state, row.run) for row in rows.values()} == {(State.DEAD, 1)}
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(15) == 0
    finally:
        if worker.process.poll() is None:
            os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.wait(10)
        os.close(worker.reading)
        await client.app.aclose()


async def test_a_worker_works_without_standard_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = load_app("logging_app", tmp_path, monkeypatch)
    ids = [(await function.enqueue("x")).id for function in (client.on_the_loop, client.in_a_child)]
    command = f"exec '{sys.executable}' -m tidegate.cli worker logging_app:app <&- >&- 2>&-"
    env = os.environ | {"TIDEGATE_DATABASE_URL": client.app.url, "TIDEGATE_RUN": str(tmp_path / "run")}
    with subprocess.Popen(["bash", "-c", command], cwd=APPS, env=env, start_new_session=True) as process:
        try:
            rows = await all_final(client.app, ids, within=30)
            assert {row.state for row in rows.values()} == {State.SUCCEEDED}
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            await client.app.aclose()


async def test_log_records_of_a_task_function_name_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = load_app("logging_app", tmp_path, monkeypatch)
    functions = {"loop": client.on_the_loop, "thread": client.in_a_thread, "child": client.in_a_child}
    ids = {
        place: (await function.using(queue="orders").enqueue(place)).id
        for place, function in functions.items()
    }
    worker = Worker(tmp_path, "--log-format", "json")
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(worker.log()))
    reader.start()
    try:
        await all_final(client.app, list(ids.values()), within=30)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(15) == 0
        reader.join(10)
    finally:
        if worker.process.poll() is None:
            os.killpg(worker.process.pid, signal.SIGKILL)
        await client.app.aclose()
    found = [json.loads(line) for line in lines]
    for place, task_id in ids.items():
        (printed,) = [one for one in found if one["message"] == place]
        assert (printed["task_id"], printed["run"], printed["queue"]) == (task_id, 1, "orders")
        (ended,) = [
            one for one in found if one["message"].startswith("succeeded: ") and one["task_id"] == task_id
        ]
        assert (ended["level"], ended["queue"]) == ("INFO", "orders")
    assert not [one for one in found if one["message"].startswith("started: ")]


def test_a_log_record_outside_a_task_names_no_task() -> None:
    one = record("x")
    TaskFieldsFilter().filter(one)
    assert (one.task_id, one.run, one.queue) == (None, None, None)  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["text", "json"])
def test_the_line_of_a_run_is_the_same_with_another_log_handler(how: str) -> None:
    code = (
        "import logging\n"
        "from tidegate.worker.log_formatters import RunMessage\n"
        "from tidegate.worker.logs import log_runs, set_up_logging\n"
        "set_up_logging()\n"
        "log = logging.getLogger('tidegate.worker')\n"
        "def run():\n"
        "    log_runs(log, [RunMessage('succeeded: shop:pay 1, run 2', '1', 2, 'orders', 'shop:pay', 'abc')])\n"
        "run()\n"
        "class Other(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        print(record.getMessage(), record.levelname, record.task_id, record.run, record.queue,"
        " record.function, record.trace_id)\n"
        "log.addHandler(Other())\n"
        "run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | {"TIDEGATE_LOG_FORMAT": how},
    )
    alone, shared = (re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "TIME", line) for line in done.stderr.splitlines())
    assert alone == shared
    assert "succeeded: shop:pay 1, run 2" in alone
    assert "orders" in alone
    assert done.stdout == "succeeded: shop:pay 1, run 2 INFO 1 2 orders shop:pay abc\n"
