"""Every answer of `docs/explanation/what-happens-when.md` names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_answer_is_held_by_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "explanation" / "what-happens-when.md").read_text()
    named = re.findall(r"`(test_\w+)`", page)
    code = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in code] == []
    rows = [line for line in page.splitlines() if line.startswith("| ") and "held by" not in line]
    held = [line for line in rows if line.count("|") == 4 and "`test_" not in line and "runs in" not in line]
    answers = [line for line in held if not re.match(r"\| (`|body)", line)]
    assert answers == []
