"""The types users see, held by mypy: wrong calls must be errors, right ones must have exact types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_public_api_has_exact_types() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "tests/typing/check_api.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
