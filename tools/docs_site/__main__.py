"""Build the documentation site: `make docs`. Exits with 1 after printing what is wrong with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.docs_site.check import problems
from tools.docs_site.layout import ROOT, Layout

OUT = ROOT / "build" / "docs"


def build(root: Path, out: Path) -> list[str]:
    """Build the site of a project into `out/html`; return a line for each fault."""
    shutil.rmtree(out, ignore_errors=True)  # no page of an earlier build may stay
    layout = Layout(root, out / "pages")
    layout.write()
    if layout.broken:
        return layout.broken
    config = str(Path(__file__).parent)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-c", config, "-d", str(out / "doctrees")]
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto"]
    done = subprocess.run([*command, *options, str(layout.out), str(out / "html")], check=False)
    if done.returncode:
        return [f"sphinx failed with exit code {done.returncode}; its messages are above"]
    return problems(out / "html")


def main() -> int:
    """Build the site of this project."""
    found = build(ROOT, OUT)
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(OUT / "html" / "index.html")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
