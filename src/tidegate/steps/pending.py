"""What a poll returns while its provider job is not done yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.domain.readers import Seconds, number_option, text_option, wait_option
from tidegate.domain.text import redacted_text

_NOTE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Pending:
    """What a `poll` returns while its job is not done yet.

    Args:
        after: The time until the next poll, such as the provider's `Retry-After`. None: the next poll comes
            after `every`, which grows from poll to poll.
        done: How much is done, for people.
        total: How much there is to do.
        note: A message for people.
        items: In `ctx.remote_batch`: items that have finished. They are recorded now, so they are never asked
            for again.

    Raises:
        OptionError: A value is invalid.
    """

    after: Seconds | None = None
    done: float | None = None
    total: float | None = None
    note: str = ""
    items: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.after is not None:
            wait_option("after", self.after)
        for name, value in (("done", self.done), ("total", self.total)):
            if value is not None:
                number_option(name, value)
        if self.note != "":
            text_option("note", self.note)


def progress_text(pending: Pending | None) -> str:
    """Return the progress that a poll reported, for people; empty if it reported none."""
    if pending is None:
        return ""
    total = "" if pending.total is None else f" of {pending.total:g}"
    done = "" if pending.done is None else f"{pending.done:g}{total} done"
    shown = ", ".join(filter(None, (done, redacted_text(pending.note, _NOTE_LENGTH))))
    return f" ({shown})" if shown else ""
