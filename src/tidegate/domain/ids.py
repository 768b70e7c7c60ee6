"""UUIDv7: ids made by the client that sort by time. Pure: moment and random bits are passed in.

Source: RFC 9562, section 5.7, with the monotonic counter of its section 6.2, method 1.
"""

from __future__ import annotations

from collections.abc import Callable


class TaskReference:
    """What stands for a stored task by its id, as a handle does. It is not the task's result."""

    __slots__ = ("id",)
    id: str


class IdMaker:
    """Makes ids that rise within one process, even when the clock stands still or goes back.

    Args:
        milliseconds: Returns the moment, in milliseconds since the epoch.
        random_bits: Returns that many random bits as a number.
    """

    def __init__(self, milliseconds: Callable[[], int], random_bits: Callable[[int], int]) -> None:
        self._milliseconds = milliseconds
        self._random_bits = random_bits
        self._last = 0
        self._counter = 0

    def __call__(self) -> str:
        """Return the next id, as text. Not safe from several threads at once."""
        now = self._milliseconds()
        if now > self._last:
            self._last, self._counter = now, self._random_bits(11)
        else:
            self._counter += 1
            if self._counter >= 1 << 12:
                self._last, self._counter = self._last + 1, 0
        number = (
            (self._last & 0xFFFF_FFFF_FFFF) << 80
            | 0x7 << 76
            | self._counter << 64
            | 0b10 << 62
            | self._random_bits(62)
        )
        text = f"{number:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


SHORTEST = 4
"""Hexadecimal digits that a short id has at least."""


def id_range(text: str) -> tuple[str, str] | None:
    """Return the least and the largest id that begin as the text does; None if no short id is written so."""
    digits = text.strip().lower().replace("-", "")
    if not SHORTEST <= len(digits) < 32 or any(digit not in "0123456789abcdef" for digit in digits):
        return None
    return _grouped(digits.ljust(32, "0")), _grouped(digits.ljust(32, "f"))


def id_or_none(text: str) -> str | None:
    """Return the id in its canonical form, or None if the text is no UUID."""
    plain = text.strip().lower().replace("-", "")
    if len(plain) != 32 or any(digit not in "0123456789abcdef" for digit in plain):
        return None
    return _grouped(plain)


def _grouped(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
