"""A table of a configuration file.

The table knows its place in the file, so that every error can name the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from tidegate.domain.readers import (
    choice_option,
    concurrency_option,
    devices_option,
    flag_option,
    kept_option,
    names_option,
    number_option,
    seconds_option,
    shown,
    size_option,
    text_option,
    texts_option,
    whole_option,
)
from tidegate.errors import ConfigError, OptionError

T = TypeVar("T")


class Table:
    """A table of settings.

    Args:
        values: The parsed TOML values.
        file: The file's name, for errors.
        section: The table's name in the file; empty for the top level.
    """

    def __init__(self, values: Mapping[str, Any], *, file: str, section: str) -> None:
        self.values = values
        self.file = file
        self.section = section

    @property
    def place(self) -> str:
        """The table's place, for errors and origins: `tidegate.toml [pools.all]`."""
        return f"{self.file} [{self.section}]" if self.section else self.file

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def require_known(self, known: Iterable[str]) -> None:
        """Refuse unknown keys.

        Raises:
            ConfigError: There is an unknown key. The fix names the key that was probably meant.
        """
        names = list(known)
        for key, value in self.values.items():
            if key not in names:
                raise ConfigError(
                    f"{self._at(key, value)}: there is no such setting",
                    fix=did_you_mean(key, names),
                    place=self.place,
                    option=key,
                )

    def table(self, key: str) -> Table:
        """Return the table under `key`; an empty one if there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, f"make it a table: [{self._inner(key)}]")
        return Table(value, file=self.file, section=self._inner(key))

    def tables(self) -> dict[str, Table]:
        """Return all inner tables by name. Every value must be a table."""
        return {key: self.table(key) for key in self.values}

    def text(self, key: str) -> str:
        """Return text that is not empty."""
        return self._read(key, text_option)

    def flag(self, key: str) -> bool:
        """Return true or false."""
        return self._read(key, flag_option)

    def whole(self, key: str) -> int:
        """Return a whole number, 1 or more."""
        return self._read(key, whole_option)

    def concurrency(self, key: str) -> int | Literal["auto"]:
        """Return a whole number, 1 or more, or `auto`."""
        return self._read(key, concurrency_option)

    def number(self, key: str) -> float:
        """Return a finite number."""
        return self._read(key, number_option)

    def seconds(self, key: str) -> float:
        """Return a duration in seconds from a number or text such as `30s` or `5m`."""
        return self._read(key, seconds_option)

    def kept(self, key: str) -> float:
        """Return a retention time in seconds; `inf` means that nothing is deleted."""
        return self._read(key, kept_option)

    def choice(self, key: str, choices: Iterable[str]) -> str:
        """Return one of these words."""
        return self._read(key, lambda name, value: choice_option(name, value, choices))

    def size(self, key: str) -> int:
        """Return a number of bytes from a number or text such as `2GiB` or `500MB`."""
        return self._read(key, size_option)

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of different names, in the order written."""
        return self._read(key, names_option)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, which may be empty."""
        return self._read(key, texts_option)

    def devices(self, key: str) -> tuple[int | str, ...]:
        """Return a list of devices by number or name, which may be empty."""
        return self._read(key, devices_option)

    def _read(self, key: str, reader: Callable[[str, Any], T]) -> T:
        try:
            return reader(key, self.values[key])
        except OptionError as error:
            raise self.wrong(key, error.fix) from None

    def wrong(self, key: str, fix: str) -> ConfigError:
        """Return the error for an invalid value of `key`."""
        return ConfigError(
            f"{self._at(key, self.values[key])}: invalid value",
            fix=fix,
            place=self.place,
            option=key,
        )

    def _at(self, key: str, value: object) -> str:
        quoted = "a table" if isinstance(value, dict) else shown(value)
        return f"{self.place}: {key} = {quoted}"

    def _inner(self, key: str) -> str:
        return f"{self.section}.{key}" if self.section else key


def private_text(table: Table, key: str) -> str:
    """Return a text that no error may show, from the table or from the file that it names; empty if none.

    Raises:
        ConfigError: Both are given, or the file cannot be read.
    """
    file_key = f"{key}_file"
    if key in table and file_key in table:
        raise ConfigError(
            f"{table.place}: both {key} and {file_key} are set",
            fix="remove one of them",
            place=table.place,
            option=key,
        )
    if file_key in table:
        path = Path(table.text(file_key))
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{table.place}: {file_key} = {path} cannot be read",
                fix="name a readable file",
                place=table.place,
                option=file_key,
            ) from error
    value = table.values.get(key, "")
    return value if isinstance(value, str) else ""


def checked(table: Table, make: Callable[[], T]) -> T:
    """Return what `make` returns. Its errors name the place in the file.

    Raises:
        ConfigError: `make` raised `OptionError`.
    """
    try:
        return make()
    except OptionError as error:
        raise ConfigError(
            f"{table.place}: {error.message}", fix=error.fix, place=table.place, option=error.option
        ) from None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the advice for an unknown word: the known word that was probably meant, or all known words."""
    names = sorted(known)
    meant = near_miss(word, names, likeness=0.6)
    return f"did you mean {meant}?" if meant else f"known here: {', '.join(names)}"


def near_miss(word: str, known: Iterable[str], *, likeness: float = 0.8) -> str | None:
    """Return the known word that this one is probably a typo of; None if there is none.

    `likeness` is how similar the words must be: 1.0 for equal words.
    """
    import difflib

    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=likeness)
    return close[0] if close else None
