"""Reads the settings of signed links: the table `[links]` and the environment variables `TIDEGATE_LINKS_…`.

Secrets never appear in an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.alerts.signature import decode_secret
from tidegate.alerts.sink_settings import SECRET_FIX, read_url
from tidegate.config.table import Table, checked, private_text
from tidegate.domain.links import LinkSettings
from tidegate.errors import ConfigError, OptionError

_KEYS = ("url", "secret", "secret_file", "old_secret", "old_secret_file")
VARIABLES = tuple(f"LINKS_{key.upper()}" for key in _KEYS)
"""The environment variables, without `TIDEGATE_`."""


def read_links(table: Table) -> LinkSettings | None:
    """Return the settings of a `[links]` table; None if it is empty.

    Raises:
        ConfigError: A key or a value is wrong, or one of `url` and `secret` is missing.
    """
    table.require_known(_KEYS)
    if not table.values:
        return None
    secrets = [text for key in ("secret", "old_secret") if (text := private_text(table, key))]
    keys = [key for text in secrets if (key := decode_secret(text)) is not None]
    if len(keys) < max(len(secrets), 1) or not private_text(table, "secret"):
        raise ConfigError(
            f"{table.place}: secret is missing or wrong", fix=SECRET_FIX, place=table.place, option="secret"
        )
    return LinkSettings(checked(table, lambda: _public_url(table)), tuple(keys))


def read_link_variables(variables: Mapping[str, str], base: Table) -> LinkSettings | None:
    """Return the settings of a `[links]` table with those of environment variables, which override it.

    Args:
        variables: The variables, without `TIDEGATE_`.
        base: The table.

    Raises:
        ConfigError: A value is wrong.
    """
    given = {key: value for key in _KEYS if (value := variables.get(f"LINKS_{key.upper()}")) is not None}
    if not given:
        return read_links(base)
    kept = {key: value for key, value in base.values.items() if not _replaces(given, key)}
    return read_links(Table({**kept, **given}, file="TIDEGATE_LINKS_…", section=""))


def _replaces(given: Mapping[str, str], key: str) -> bool:
    """Whether a given secret, or the file of one, takes the place of this key."""
    name = key.removesuffix("_file")
    return name in given or f"{name}_file" in given


def _public_url(table: Table) -> str:
    url = read_url("", table.text("url") if "url" in table else "")
    if "?" in url or "#" in url:
        raise OptionError("url is not usable", fix="write https://HOST or https://HOST/PATH", option="url")
    return url.rstrip("/")
