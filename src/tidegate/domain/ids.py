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


def id_or_none(text: str) -> str | None:
    """Return the id in its canonical form, or None if the text is no UUID."""
    plain = text.strip().lower().replace("-", "")
    if len(plain) != 32 or any(digit not in "0123456789abcdef" for digit in plain):
        return None
    return f"{plain[:8]}-{plain[8:12]}-{plain[12:16]}-{plain[16:20]}-{plain[20:]}"
