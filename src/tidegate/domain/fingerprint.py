"""The fingerprint of a failure: the same for failures that have one cause and other details.

A fingerprint is made of the error's class, its message without the parts that differ from task to task, and
the innermost frame of the application's own code.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from tidegate.domain.failure import Failure

SHAPE_LIMIT = 300
"""A normalised message is cut to this many characters. A difference after them makes no other failure."""
_READ_LIMIT = 2_000
"""How much of a message is read, so that the patterns take microseconds even on a long one."""
_DIGITS = 16
"""Hex digits of a fingerprint: 64 bits, so among a million groups hardly two are equal by chance."""

_DIFFERING = (
    (r"\b[a-zA-Z][\w+.-]{1,15}://[^\s'\"<>]+", "<url>"),
    (r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+", "<email>"),
    (r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»", "<text>"),
    (r"(?<![\w/])(?:~|\.{1,2})?/[\w.+@~-]+(?:/[\w.+@~-]+)*/?", "<path>"),
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<time>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<hex>"),
    (r"\b(?=[a-fA-F]*\d)(?=\d*[a-fA-F])[0-9a-fA-F]{8,}\b", "<hex>"),
    (r"\b(?:[A-Za-z]{2,12}[-_])+(?=[A-Za-z0-9_-]*\d)[A-Za-z0-9]{6,}\b", "<id>"),
    (r"\b(?=[A-Za-z_-]*\d)(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_-]{20,}\b", "<id>"),
    (r"(?<![\w.])[-+]?\d[\d,_.]*(?:[eE][-+]?\d+)?", "<number>"),
    (r"\d+", "<number>"),
)
"""Patterns of what differs between failures of one cause, each with its replacement. The order matters."""

_PATTERN = re.compile(
    "|".join(f"(?P<p{at}>{pattern})" for at, (pattern, _) in enumerate(_DIFFERING)), re.ASCII
)
_REPLACEMENTS = tuple(replacement for _, replacement in _DIFFERING)

_FRAME = re.compile(r'^[ \t|+]*File "([^"\n]+)", line \d+, in (\S+)', re.MULTILINE)
_NOT_OWN = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d|[/\\]Lib[/\\]|^<|[/\\]tidegate[/\\](?:worker|calls)[/\\]"
)
_BLOCK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The common fields of failures with one cause."""

    id: str
    """16 hex digits. The same on every machine and for every version, as long as the parts are the same."""
    error_class: str
    """The dotted name of the exception class; empty if no exception was raised, as at a crash."""
    shape: str
    """The message with `<number>`, `<id>`, `<hex>`, `<url>`, `<text>` and such for what differs."""
    frame: str
    """The innermost own frame, `jobs/summaries.py:summarize`; empty if there is none."""


def fingerprint_of(failure: Failure) -> Fingerprint:
    """Return the fingerprint of a failure.

    A failure without an exception has its reason in place of the class: a crash and a passed deadline differ.
    """
    shape = normalised(failure.message)
    frame = own_frame(failure.traceback)
    identity = "\0".join((failure.error_class or f"({failure.reason})", shape, frame))
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return Fingerprint(digest, failure.error_class, shape, frame)


def normalised(message: str) -> str:
    """Return the message's shape: one line, with a word in angle brackets for each part that differs."""
    line = " ".join(message[:_READ_LIMIT].split())
    return _PATTERN.sub(_replacement, line)[:SHAPE_LIMIT]


def own_frame(traceback: str) -> str:
    """Return the innermost frame of the application's code: `folder/file.py:function`, or an empty text.

    Only the last exception of the traceback is read. The line number is left out, because an unrelated change
    of the file moves it. Only the last folder and the file name of a path remain, because other machines keep
    the code in another place.
    """
    last = traceback[traceback.rfind(_BLOCK) + 1 :] if _BLOCK in traceback else traceback
    own = [(path, function) for path, function in _FRAME.findall(last) if not _NOT_OWN.search(path)]
    if not own:
        return ""
    path, function = own[-1]
    return "/".join(re.split(r"[/\\]", path)[-2:]) + f":{function}"


def _replacement(match: re.Match[str]) -> str:
    at = match.lastgroup
    return match.group() if at is None else _REPLACEMENTS[int(at[1:])]
