"""The tables of the pages say what the code says: settings, failures, exit codes, moves, dependencies."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

from pages import ROOT, blocks, table_rows

from tidegate.cli import error_report as cli_failure
from tidegate.config import DEFAULT_DATABASE_URL, load_config
from tidegate.config.load import _SECTION_KEYS, _VARIABLES
from tidegate.config.sections import RETENTION_NAMES
from tidegate.domain.failure import Reason
from tidegate.domain.retention import Retention
from tidegate.domain.spec import Priority
from tidegate.domain.states import MOVES, State, allowed
from tidegate.providers.general import of_status
from tidegate.providers.meaning import NOTHING_KNOWN
from tidegate.worker.settings import Pool, Timings

DOCS = ROOT / "docs"
SQL = ROOT / "src" / "tidegate" / "store" / "sqlite" / "sql"


def _code(cell: str) -> str:
    return cell.strip("`")


def _defaults_on_the_page(heading: str) -> dict[str, str]:
    rows = table_rows(DOCS / "reference" / "configuration.md", under=heading)
    return {_code(row[0]): _code(row[1]) for row in rows[1:]}


# --- configuration ---------------------------------------------------------------------------------------


def test_every_timing_of_a_worker_is_on_the_page_with_its_default():
    rows = _defaults_on_the_page("## Worker")

    defaults = {field.name: getattr(Timings(), field.name) for field in fields(Timings)}
    assert rows == {name: "none" if value is None else f"{value:.12g}" for name, value in defaults.items()}


def test_every_setting_of_retention_is_on_the_page_with_its_default():
    rows = _defaults_on_the_page("## Retention")

    defaults = {field.name: getattr(Retention(), field.name) for field in fields(Retention)}
    del defaults["queues"]
    shown = {
        name: "none" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)
        for name, value in defaults.items()
    }
    assert rows == shown
    assert set(rows) == set(RETENTION_NAMES)


def test_every_setting_of_a_pool_is_on_the_page_with_its_default():
    rows = _defaults_on_the_page("## Pools")

    default = Pool()
    shares = ", ".join(f"{priority.word} = {share:g}" for priority, share in sorted(default.shares.items()))
    assert rows == {
        "queues": '["*"]',
        "concurrency": str(default.concurrency),
        "processes": str(default.processes),
        "poll_interval": f"{default.poll_interval:g}",
        "memory_limit": "none",
        "memory_soft_limit": "none",
        "gpus": "[]",
        "vram_limit": "none",
        "child_runs": str(default.child_runs),
        "fatal_errors": json.dumps(default.fatal_errors),
        "overlap": "false",
        "event_loop": default.event_loop,
        "strict": "false",
        "shares": f"{{ {shares} }}",
    }
    assert set(rows) == {field.name for field in fields(Pool)} - {"name"}


def test_every_setting_of_the_top_level_is_on_the_page():
    assert set(_defaults_on_the_page("## Top level")) == set(_SECTION_KEYS) - {"worker", "pools", "retention"}


def test_every_variable_is_on_the_page():
    rows = [
        row[0]
        for row in table_rows(DOCS / "reference" / "configuration.md", under="## Environment variables")[1:]
    ]
    named = set(re.findall(r"TIDEGATE_(\w+)", " ".join(rows)))

    clocks = {field.name.upper() for field in fields(Timings)}
    clocks |= {f"RETENTION_{name.upper()}" for name in RETENTION_NAMES}
    assert {name for name in _VARIABLES if name not in clocks} <= named
    used = set(re.findall(r'"TIDEGATE_([A-Z_]+)"', _all_source()))
    assert used <= named
    assert f"`{DEFAULT_DATABASE_URL}`" in (DOCS / "reference" / "configuration.md").read_text(
        encoding="utf-8"
    )


def test_the_example_file_is_a_valid_configuration(tmp_path):
    (example,) = blocks(DOCS / "reference" / "configuration.md", "toml")
    (tmp_path / "tidegate.toml").write_text(example.text)

    config = load_config(tmp_path, {})
    development = load_config(tmp_path, {"TIDEGATE_ENV": "development"})

    assert [pool.name for pool in config.pools] == ["realtime", "everything-else"]
    assert config.pools[1].shares[Priority.BULK] == 0.2
    assert config.timings.drain_grace == 120
    assert [pool.name for pool in development.pools] == ["all"]


# --- failures --------------------------------------------------------------------------------------------


def _reason_rows() -> list[list[str]]:
    return [
        row for row in table_rows(DOCS / "explanation" / "failures.md", under="## Reasons") if len(row) == 3
    ]


def test_every_reason_is_on_the_page():
    rows = [_code(row[0]) for row in _reason_rows() if row[2] != "reason" and not row[0][:3].isdigit()]

    assert sorted(rows[1:]) == sorted(Reason)


def test_every_status_on_the_page_means_what_the_code_says():
    rows = [row for row in _reason_rows() if row[0][:3].isdigit()]
    seen = 0
    for statuses, verdict, reason in rows:
        for status in statuses.split(","):
            meaning = of_status(int(status))
            assert meaning is not None
            assert (meaning.verdict, meaning.reason) == (verdict, _code(reason)), status
            seen += 1
    assert seen > 25


def test_no_status_with_a_meaning_of_its_own_is_missing_on_the_page():
    rows = [row for row in _reason_rows() if row[0][:3].isdigit()]
    listed = {int(status) for row in rows for status in row[0].split(",")}

    for status in range(400, 600):
        usual = of_status(400 if status < 500 else 500)
        assert status in listed or of_status(status) == usual, status
    assert of_status(498) == NOTHING_KNOWN


# --- the command line, the moves, the dependencies -------------------------------------------------------


def test_every_exit_code_is_on_the_page():
    rows = {int(row[0]) for row in table_rows(DOCS / "how-to" / "operate.md", under="## Exit codes")[1:]}
    constants = {
        value for name, value in vars(cli_failure).items() if name.isupper() and isinstance(value, int)
    }

    assert rows == constants | {0, 130}


def test_the_moves_on_the_page_are_those_of_the_state_table():
    rows = table_rows(DOCS / "architecture.md", under="## The life of a task")[1:]

    drawn = {}
    for operation, moves in rows:
        sources, targets = (part.split(", ") for part in moves.split(" → "))
        drawn[operation] = {(source, target) for source in sources for target in targets}
    assert drawn == {
        operation: {(source or "new", str(target)) for source, target in moves}
        for operation, moves in MOVES.items()
    }


def test_the_moves_that_sql_files_declare_are_in_the_state_table():
    operations = {"commit_batch": "enqueue"}
    seen = 0
    for path in SQL.glob("*.sql"):
        for source, target in _declared_moves(path):
            operation = operations.get(path.stem, path.stem)
            assert allowed(operation, None if source == "new" else State(source), State(target)), path.name
            seen += 1
    assert seen > 15


def test_every_sql_file_that_puts_a_task_somewhere_declares_its_moves():
    places = re.compile(r"INSERT INTO (?:ready|running|waiting|archive|dead)\b")
    placing = {path.stem for path in SQL.glob("*.sql") if places.search(path.read_text(encoding="utf-8"))}

    # What `release_batches` places has been ready or scheduled since `commit_batch`.
    declaring = {path.stem for path in SQL.glob("*.sql") if _declared_moves(path)}
    assert placing - {"release_batches"} == declaring - {"commit_batch"}


def _declared_moves(path: Path) -> list[tuple[str, str]]:
    head = re.search(r"^-- moves: (.+)$", path.read_text(encoding="utf-8"), re.M)
    return re.findall(r"(\w+) -> (\w+)", head[1]) if head else []


def test_every_dependency_has_its_line_and_nothing_else_has():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    groups = [project["project"]["dependencies"], *extras.values(), *project["dependency-groups"].values()]
    wanted = {re.split(r"[<>=\[ ]", name)[0] for group in groups for name in group} - {"tidegate"}

    lines = (DOCS / "dependencies.md").read_text(encoding="utf-8").splitlines()
    first_cells = [cell for line in lines if line.startswith("| `") for cell in line.split("|")[1:3]]
    names = [cell for cell in first_cells if re.fullmatch(r"(?: *`[\w-]+`,?)+ *", cell)]
    assert set(re.findall(r"`([\w-]+)`", " ".join(names))) == wanted | set(extras)


def _all_source() -> str:
    """Return the source, without what `testing` tells its own processes."""
    package = ROOT / "src" / "tidegate"
    files = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] != "testing"]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)
