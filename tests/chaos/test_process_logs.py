"""The files that processes write, and the measurement of the machine's own stalls."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.hosts import ChaosHost, HostProcess
from chaos.process_logs import (
    ClientError,
    EnqueueAnswered,
    EnqueueSent,
    ProcessLog,
    is_waiting,
    read_clients,
    read_lines,
)
from harness.faults import FaultLog
from harness.record import ScriptedEnd
from tidegate import Priority
from tidegate.store.rows import NewTask

STEADY = "chaos.functions:steady"


def new_task(task_id: str) -> NewTask:
    return NewTask(
        task_id, STEADY, "default", Priority.NORMAL, b'{"k":{"script":["unknown 0.05"]}}', "json/1", key="k",
        unique="u",
    )  # fmt: skip


def test_a_line_cut_off_by_a_kill_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "client-1.ndjson"
    first = ProcessLog(path)
    first.write(EnqueueSent("call-1", (new_task("a"),), many=False))
    assert is_waiting(path)
    first.write(EnqueueAnswered("call-1", ("b",)))
    assert not is_waiting(path)
    with path.open("ab") as file:
        file.write(b'{"type":"sent","call":"call-2"')
    ProcessLog(path).write(ClientError("later"))
    assert read_lines(path) == [
        EnqueueSent("call-1", (new_task("a"),), many=False),
        EnqueueAnswered("call-1", ("b",)),
        ClientError("later"),
    ]


def test_an_enqueue_without_an_answer_may_be_stored_or_not(tmp_path: Path) -> None:
    path = tmp_path / "client-1.ndjson"
    process_log = ProcessLog(path)
    process_log.write(EnqueueSent("call-1", (new_task("a"),), many=False))
    process_log.write(EnqueueSent("call-2", (new_task("c"), new_task("d")), many=True))
    process_log.write(EnqueueAnswered("call-2", ("c", "e")))
    clients = read_clients([path])
    assert [(one.task_id, one.ok) for one in clients.described.submitted] == [
        ("a", False),
        ("c", True),
        ("e", True),
    ]
    assert [sent.call for sent in clients.unanswered] == ["call-1"]
    assert clients.unique_names == {"u": ["a", "c", "d"]}
    assert clients.scripted_ends["a"] == ScriptedEnd(may_succeed=False, dead_reasons=frozenset({"unknown"}))


def test_a_stalled_machine_is_detected() -> None:
    program = (
        "import sys, time\n"
        "from chaos.stall_detector import StallDetector\n"
        "with StallDetector() as detector:\n"
        "    print('ticks', flush=True)\n"
        "    sys.stdin.readline()\n"
        "print(any(stall.ended_at - stall.began_at > 0.3 for stall in detector.stalls))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ticks\n"
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.4)
    process.send_signal(signal.SIGCONT)
    stdout, _ = process.communicate("\n", timeout=20)
    assert stdout == "True\n"


def test_a_request_that_the_store_never_answers_ends_the_client_with_the_last_error(tmp_path: Path) -> None:
    program = (
        "import asyncio, random, sys\n"
        "from pathlib import Path\n"
        "from chaos.client import ChaosClient, NoAnswerError\n"
        "from chaos.functions import app\n"
        "from tidegate import StoreError\n"
        "async def refuse():\n"
        "    raise StoreError('it is full', fix='')\n"
        "async def hang():\n"
        "    await asyncio.Event().wait()\n"
        "client = ChaosClient(app, Path(sys.argv[1]), rng=random.Random(1), lease=0.1)\n"
        "for ask in (refuse, hang):\n"
        "    try:\n"
        "        asyncio.run(client._until_answered(ask, within=0.3))\n"
        "    except NoAnswerError as error:\n"
        "        print(error)\n"
    )
    chaos = {"TIDEGATE_CHAOS_DIRECTORY": str(tmp_path), "TIDEGATE_CHAOS_PLAN": "1 2 1.0"}
    ours = {"TIDEGATE_DATABASE_URL": f"sqlite:///{tmp_path}/queue.db", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "client-1.ndjson")],
        env=chaos | ours, capture_output=True, text=True, check=True,
    )  # fmt: skip
    refused, hung = done.stdout.splitlines()
    assert "it is full" in refused
    assert hung == "no answer within 0.3 s: it did not return"


def test_a_killed_process_is_no_target_even_before_its_end_was_noticed(tmp_path: Path) -> None:
    host = ChaosHost(
        name="worker-1", command=(), directory=tmp_path, env={}, run_id="run", fault_log=FaultLog(),
        rng=random.Random(1),
    )  # fmt: skip
    process = subprocess.Popen(["sleep", "60"])
    host.processes_started.append(HostProcess(process.pid, 0.0))
    assert host.current_process is host.processes_started[0]
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped yet
    assert host.current_process is None
    process.wait()


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        (0, "", True),
        (-signal.SIGTERM, "", True),
        (1, "pool default: 1 child processes were killed because their tasks did not stop", True),
        (1, "pool default: process 7 is killed: it did not end in time", False),
        (70, "pool default: 1 child processes were killed because their tasks did not stop", False),
    ],
)
def test_exit_code_1_after_sigterm_needs_a_killed_child_process_in_the_log(
    tmp_path: Path, code: int, line: str, expected: bool
) -> None:
    host = ChaosHost(
        name="worker-1",
        command=[],
        directory=tmp_path,
        env={},
        run_id="r",
        fault_log=FaultLog(),
        rng=random.Random(1),
    )
    host.log_path.write_text(f"{line}\n")
    assert host.ended_well(code) is expected
