"""One table of a configuration file while it is read: it knows its place, so that every error can name it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.errors import ConfigError, OptionError
from tidegate.options import name_option, seconds_option, size_option


class Table:
    """A table of settings.

    Args:
        values: As TOML gave them.
        file: The file's name, for errors.
        section: The table's name as it is written in the file; empty for the top level.
    """

    def __init__(self, values: Mapping[str, Any], *, file: str, section: str) -> None:
        self.values = values
        self.file = file
        self.section = section

    @property
    def place(self) -> str:
        """Where it stands, for errors and origins: `tidegate.toml [pools.all]`."""
        return f"{self.file} [{self.section}]" if self.section else self.file

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def require_known(self, known: Iterable[str]) -> None:
        """Refuse keys that mean nothing.

        Raises:
            ConfigError: There is one; the fix names the key that was probably meant.
        """
        names = list(known)
        for key, value in self.values.items():
            if key not in names:
                raise ConfigError(
                    f"{self._at(key, value)}: there is no such setting", fix=did_you_mean(key, names)
                )

    def table(self, key: str) -> Table:
        """Return the table under `key`, empty if there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, f"make it a table: [{self._inner(key)}]")
        return Table(value, file=self.file, section=self._inner(key))

    def tables(self) -> dict[str, Table]:
        """Return all tables in here by name; everything in here must be one."""
        return {key: self.table(key) for key in self.values}

    def text(self, key: str) -> str:
        """Return text that is not empty."""
        value = self.values[key]
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, "give text in quotes")
        return value

    def flag(self, key: str) -> bool:
        """Return true or false."""
        value = self.values[key]
        if not isinstance(value, bool):
            raise self.wrong(key, "use true or false")
        return value

    def whole(self, key: str) -> int:
        """Return a whole number."""
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "use a whole number")
        return value

    def number(self, key: str) -> float:
        """Return a finite number."""
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.wrong(key, "use a number")
        return float(value)

    def seconds(self, key: str) -> float:
        """Return a duration in seconds from a number or text such as `30s` or `5m`."""
        try:
            return seconds_option(key, self.values[key])
        except OptionError:
            raise self.wrong(
                key, 'use a number of seconds, or text such as "30s", "5m", "1h", "7d"'
            ) from None

    def size(self, key: str) -> int:
        """Return a number of bytes from a number or text such as `2GiB` or `500MB`."""
        try:
            return size_option(key, self.values[key])
        except OptionError as error:
            raise self.wrong(key, error.fix) from None

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of names, each once, in the order written."""
        value = self.values[key]
        if not isinstance(value, list) or not value:
            raise self.wrong(key, f'write a list: {key} = ["default"], or ["*"] for all')
        try:
            names = tuple(name_option(key, name) for name in value)
        except OptionError as error:
            raise self.wrong(key, error.fix) from None
        if len(set(names)) < len(names):
            raise self.wrong(key, "name each of them once")
        return names

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty perhaps."""
        value = self.values[key]
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            raise self.wrong(key, f'write a list of texts: {key} = ["CUDA error"], or [] for none')
        return tuple(value)

    def devices(self, key: str) -> tuple[int | str, ...]:
        """Return a list of devices by number or name, empty perhaps."""
        value = self.values[key]
        if not isinstance(value, list) or not all(_is_device(device) for device in value):
            raise self.wrong(key, f'write a list of numbers or UUIDs: {key} = [0, 1], or ["GPU-8a3f…"]')
        return tuple(value)

    def wrong(self, key: str, fix: str) -> ConfigError:
        """Return the error about the value of `key`."""
        return ConfigError(f"{self._at(key, self.values[key])}: this value cannot work", fix=fix)

    def _at(self, key: str, value: object) -> str:
        shown = "a table" if isinstance(value, dict) else f"{value!r}"
        return f"{self.place}: {key} = {shown}"

    def _inner(self, key: str) -> str:
        return f"{self.section}.{key}" if self.section else key


def _is_device(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    return value >= 0 if isinstance(value, int) else bool(value)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the advice for a word that is not known: the one that was meant, or all of them."""
    names = sorted(known)
    meant = near_miss(word, names, likeness=0.6)
    return f"did you mean {meant}?" if meant else f"known here: {', '.join(names)}"


def near_miss(word: str, known: Iterable[str], *, likeness: float = 0.8) -> str | None:
    """Return the known word that this one is a slip of, if any; `likeness` is 1.0 for the same word."""
    import difflib

    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=likeness)
    return close[0] if close else None
