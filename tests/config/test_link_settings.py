"""The settings of signed links in `tidegate.toml` and in the environment."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tidegate.config import load_config
from tidegate.domain.links import LinkSettings
from tidegate.errors import ConfigError

KEYS = [letter.encode() * 32 for letter in "abc"]
SECRETS = ["whsec_" + base64.b64encode(key).decode() for key in KEYS]
TABLE = f'[links]\nurl = "https://tasks.example/queue/"\nsecret = "{SECRETS[0]}"\n'


def load(folder: Path, text: str = "", **variables: str) -> LinkSettings | None:
    (folder / "tidegate.toml").write_text(text)
    return load_config(folder, {f"TIDEGATE_{name}": value for name, value in variables.items()}).links


def test_without_settings_there_are_no_links(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    assert load(tmp_path, "[links]\n") is None


def test_links_are_read_from_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, TABLE) == LinkSettings("https://tasks.example/queue", (KEYS[0],))
    two = load(tmp_path, TABLE + f'old_secret = "{SECRETS[1]}"\n')
    assert two == LinkSettings("https://tasks.example/queue", (KEYS[0], KEYS[1]))


def test_variables_override_the_file_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRETS[2] + "\n")
    found = load(tmp_path, TABLE, LINKS_SECRET_FILE=str(tmp_path / "secret"), LINKS_OLD_SECRET=SECRETS[0])
    assert found == LinkSettings("https://tasks.example/queue", (KEYS[2], KEYS[0]))
    alone = load(tmp_path, "", LINKS_URL="http://localhost:4180", LINKS_SECRET=SECRETS[1])
    assert alone == LinkSettings("http://localhost:4180", (KEYS[1],))


def test_an_environment_has_its_own_links(tmp_path: Path) -> None:
    text = f'{TABLE}[env.test.links]\nurl = "https://test.example"\nsecret = "{SECRETS[1]}"\n'
    assert load(tmp_path, text, ENV="test") == LinkSettings("https://test.example", (KEYS[1],))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'[links]\nsecret = "{SECRETS[0]}"\n', "url is not usable"),
        ('[links]\nurl = "https://tasks.example"\n', "secret is missing or wrong"),
        ('[links]\nurl = "https://tasks.example"\nsecret = "hidden"\n', "secret is missing or wrong"),
        (f'[links]\nurl = "https://tasks.example"\nold_secret = "{SECRETS[0]}"\n', "secret is missing"),
        (TABLE + 'old_secret = "hidden"\n', "secret is missing or wrong"),
        (TABLE + 'secret_file = "x"\n', "both secret and secret_file are set"),
        (TABLE + 'secrets = ["x"]\n', "there is no such setting"),
        (f'[links]\nurl = "https://tasks.example/?a=1"\nsecret = "{SECRETS[0]}"\n', "url is not usable"),
        (f'[links]\nurl = "tasks.example"\nsecret = "{SECRETS[0]}"\n', "url is not usable"),
        (f'[links]\nurl = 7\nsecret = "{SECRETS[0]}"\n', "url"),
    ],
)
def test_wrong_settings_are_refused_and_secrets_not_shown(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load(tmp_path, text)
    assert "hidden" not in f"{refused.value}{vars(refused.value)}"
    assert SECRETS[0] not in f"{refused.value}{vars(refused.value)}"


def test_no_repr_shows_a_key(tmp_path: Path) -> None:
    assert "aaa" not in repr(load(tmp_path, TABLE))
