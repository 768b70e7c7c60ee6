"""Which project a program belongs to: the nearest one above it, within its repository."""

from __future__ import annotations

import subprocess
import sys

from tidegate.config import DEFAULT_DATABASE_URL, load_config


def test_the_file_is_found_from_a_directory_below_it_and_its_paths_count_from_it(tmp_path):
    (tmp_path / "tidegate.toml").write_text('app = "a:app"\ndatabase = "sqlite:///data/shop.db"')
    below = tmp_path / "src" / "shop"
    below.mkdir(parents=True)

    config = load_config(below, {})

    assert (config.path, config.app) == (tmp_path / "tidegate.toml", "a:app")
    assert config.database_url == f"sqlite:///{tmp_path}/data/shop.db"
    assert load_config(below, {"TIDEGATE_DATABASE_URL": "sqlite:///x.db"}).database_url == "sqlite:///x.db"


def test_a_store_that_is_there_above_is_used_without_any_file(tmp_path):
    (tmp_path / ".tidegate").mkdir()
    (tmp_path / ".tidegate" / "tidegate.db").touch()
    (tmp_path / "scripts").mkdir()

    assert load_config(tmp_path / "scripts", {}).database_url == f"sqlite:///{tmp_path}/.tidegate/tidegate.db"
    assert load_config(tmp_path, {}).database_url == DEFAULT_DATABASE_URL


def test_nothing_above_a_repository_or_in_a_directory_of_others_is_used(tmp_path):
    (tmp_path / "tidegate.toml").write_text('app = "a:app"')
    repository, shared = tmp_path / "repository", tmp_path / "shared"
    (repository / ".git").mkdir(parents=True)
    (repository / "src").mkdir()
    (shared / "mine").mkdir(parents=True)
    (shared / "tidegate.toml").write_text('app = "planted:app"')
    shared.chmod(0o777)

    assert load_config(repository / "src", {}).path is None
    assert load_config(shared / "mine", {}).path is None


SUBMIT = "from tidegate import Tidegate\nprint(Tidegate().url)\n"


def test_a_script_started_from_elsewhere_uses_the_project_it_lies_in(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "submit.py").write_text(SUBMIT)
    (project / "tidegate.toml").write_text('app = "app:app"')

    done = subprocess.run(
        [sys.executable, project / "submit.py"], cwd=elsewhere, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == f"sqlite:///{project}/.tidegate/tidegate.db"


def test_a_new_store_away_from_its_script_is_logged_and_kept_out_of_git(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "submit.py").write_text(
        "import asyncio\nfrom tidegate import Tidegate\nfrom tidegate.internals import core_of\nasyncio.run(core_of(Tidegate()).opened_store())\n"
    )
    command = [sys.executable, project / "submit.py"]

    far, near = (
        subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stderr
        for cwd in (elsewhere, project)
    )

    assert f"created a new store at {elsewhere}/.tidegate/tidegate.db" in far
    assert near == ""
    assert (project / ".tidegate" / ".gitignore").read_text().endswith("*\n")
