"""Task ids: UUIDv7, made by the client, which sort by time. The time and random bits are passed in.

Source: RFC 9562, section 5.7, with the monotonic counter of its section 6.2, method 1.
"""

from __future__ import annotations

from collections.abc import Callable


class TaskReference:
    """The base of objects that refer to a stored task by its id, such as a handle."""

    __slots__ = ("id",)
    id: str


class IdMaker:
    """Makes ids that increase within one process, even when the clock stands still or goes back.

    Args:
        milliseconds: Returns the current time in milliseconds since the epoch.
        random_bits: Returns the given number of random bits as an integer.
    """

    def __init__(self, milliseconds: Callable[[], int], random_bits: Callable[[int], int]) -> None:
        self._milliseconds = milliseconds
        self._random_bits = random_bits
        self._last = 0
        self._counter = 0

    def __call__(self) -> str:
        """Return the next id as text. Not thread-safe."""
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
"""The least number of hexadecimal digits of a short id."""


def id_range(text: str) -> tuple[str, str] | None:
    """Return the smallest and the largest id that start with this text; None if it is not a short id."""
    digits = text.strip().lower().replace("-", "")
    if not SHORTEST <= len(digits) < 32 or any(digit not in "0123456789abcdef" for digit in digits):
        return None
    return _grouped(digits.ljust(32, "0")), _grouped(digits.ljust(32, "f"))


def id_or_none(text: str) -> str | None:
    """Return the id in its canonical form; None if the text is not a UUID."""
    plain = text.strip().lower().replace("-", "")
    if len(plain) != 32 or any(digit not in "0123456789abcdef" for digit in plain):
        return None
    return _grouped(plain)


def _grouped(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
