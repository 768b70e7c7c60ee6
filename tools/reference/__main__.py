"""Write the pages of the reference that are made from the code: `make reference`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from tools.reference import command_line, http_api, metrics, problems, python_api, settings

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path("docs/reference")
GENERATED = "<!-- Made from the code by `make reference`. Do not edit this page; edit the docstrings. -->\n\n"


def pages() -> dict[Path, Callable[[], str]]:
    """Return how to make each page, by its path in the project."""
    made: dict[Path, Callable[[], str]] = {
        REFERENCE / "command-line.md": lambda: GENERATED + command_line.page(),
        REFERENCE / "http-routes.md": lambda: GENERATED + http_api.page(),
        REFERENCE / "problems.md": lambda: GENERATED + problems.page(),
        REFERENCE / "metrics.md": lambda: GENERATED + metrics.page(),
        settings.PAGE: lambda: settings.page(ROOT),
    }
    for name in python_api.subjects():
        made[REFERENCE / "python" / f"{name}.md"] = functools.partial(_python_page, name)
    return made


def _python_page(name: str) -> str:
    return GENERATED + python_api.page(name)


def main() -> None:
    """Write every page."""
    for path, make in pages().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
