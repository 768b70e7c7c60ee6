"""A process title leaves the environment readable, where other processes read the mark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidegate.worker.children import process_tree

CODE = """
import sys
from pathlib import Path
from tidegate.worker.title import set_title
set_title("child: app:work 01935c1e-7d3a-7000-8000-000000000000")
print(Path("/proc/self/cmdline").read_bytes().rstrip(b"\\0").decode(), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_process_with_a_title_is_still_found_by_its_mark() -> None:
    pytest.importorskip("setproctitle")
    with subprocess.Popen(
        [sys.executable, "-c", CODE],
        env={process_tree.MARK: "a-worker/a-slot", "PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("tidegate child: app:work")
        assert process_tree.find_marked("a-slot") == [process.pid]
        process.kill()
