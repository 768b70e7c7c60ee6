"""The redactor: replaces secrets in text that people read. There is no other one.

Errors quote headers, URLs, settings and connection strings. `redact` runs where such text is made, before it
is stored or logged. So no output (database, log, HTTP, command line, export) needs a mask of its own.

Each rule runs only if the text contains a word that the rule needs, so text without secrets costs a few
searches for fixed strings. No pattern backtracks further than a constant distance.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections import Counter

from tidegate.domain.secret_shapes import HARMLESS_NAMES, HARMLESS_VALUES, LIKELY, PREFIXED, SURE

_ENDS = (*SURE, *LIKELY)

STARS = "***"
"""The replacement for a secret."""
MARGIN = 4_096
"""Pass `redact` this many characters beyond a cut: it does not recognise a secret that is cut in two."""

_QUOTE = r"(?:\\{0,4}[\"'`])"


@functools.cache
def _bounded(hint: str, pattern: str) -> re.Pattern[str]:
    """Return the pattern at the start of a word. Search is fast if the pattern begins with its hint.

    Compiled when a text has the hint: to compile them all would delay each start of a process.
    """
    literal = re.escape(hint)
    for beginning in (hint, literal):
        if pattern.startswith(beginning):
            return re.compile(rf"{literal}(?<![A-Za-z0-9]{literal}){pattern[len(beginning) :]}")
    return re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})")


_PEM_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(r"[A-Za-z0-9+/=\s\\]*")
_PEM_BODY_BEFORE = re.compile(r"(?:[A-Za-z0-9+/=]|\s|\\[nr]){24,}$")

_USERINFO = re.compile(
    r"(://[^\s:@/?#\"'<>]{0,256}:)(?!\d{1,5}(?:[/?#\s\"'<>,;)]|$))"
    r"(?:[^\s\"'<>/?#]{1,1536}|[^\s\"'<>]{1,1536})@"
)
_USER_ALONE = re.compile(r"(://)([^\s:@/?#\"'<>]{12,256})@")
_SCHEME = re.compile(
    r"\b((?:bearer|basic|negotiate|ntlm|apikey|token)\s{1,4})([\w.~+/%:=-]{6,})", re.IGNORECASE
)
_AUTHORIZATION = re.compile(
    rf"((?:proxy-)?authorization{_QUOTE}?\s{{0,4}}(?:[:=]|=>|(?<=[\"']),)\s{{0,4}}(?:b(?=[\"']))?{_QUOTE}?"
    r"(?:[A-Za-z0-9-]{2,20}[ \t]{1,4})?)"
    r"([^\s\"'`\\,;)}\]]{3,}(?:,[ \t]{0,4}[\w-]{1,40}=[^\s,\"'`\\)}\]]{1,512}){0,8})",
    re.IGNORECASE,
)
_COOKIE = re.compile(
    rf"(\b(?:set-)?cookie{_QUOTE}?\s{{0,4}}(?:[:=]|(?<=[\"']),)\s{{0,4}}(?:b(?=[\"']))?{_QUOTE}?)"
    r"(?=[^\s=;,]{1,128}=)([^\r\n\"'`]{3,})",
    re.IGNORECASE,
)

_OPERATOR = r"(?:[:?=|]{0,3}=|=>|::?|(?<=[\"']),(?=\s{0,4}b?\\{0,4}[\"'`])|\.=|>)"
_OPERATION = re.compile(rf"(?<=[A-Za-z]){_QUOTE}?\]?\s{{0,4}}{_OPERATOR}\s{{0,8}}(?:[bru](?=[\"']))?")
_VALUE_IN_QUOTES = re.compile(r"(\\{0,4}[\"'`])((?:(?!\1)(?:\\.|[^\r\n\\])){1,8192})(?=\1)")
_VALUE_AFTER_QUOTE = re.compile(r"(\\{0,4}[\"'`])([^\s\"'`,;&<>)}\]\\]{1,128})")
"""For a quote that is not closed, or closed only much later."""
_VALUE = re.compile(r"()([^\s\"'`,;&<>)}\]\\]{1,128})")
_REST_OF_VALUE = re.compile(r"[^\s\"'`,;&<>)}\]\\]*")
_NAME = re.compile(r"[\w.-]{1,64}\Z")
_NEAR = re.compile(
    r"((?:api[ _-]?key|access[ _-]?key|secret(?:[ _-]key)?|token|password|credential|passphrase|\bkey)s?\b"
    r"[^\n]{0,48}?[\s:=\"'`(\[])([A-Za-z0-9+/_.~$-]{16,512}={0,2})(?![\w./:-])",
    re.IGNORECASE,
)
_LONGEST_JUDGED = 96
_PLACEHOLDERS = ("$", "{", "%", "<")
_NEAR_WORDS = ("key", "secret", "token", "password", "credential", "passphrase")
_COMMAND = re.compile(
    r"((?<!\S)(?:-u|--user|--proxy-user)[ \t=]{1,4}\\?[\"']?[^\s:\"']{0,256}:)([^\s\"']{1,256})"
)
_SCHEMES = ("bearer ", "basic ", "negotiate ", "ntlm ", "apikey ", "token ")

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_DOTTED = re.compile(r"[A-Za-z_][\w]*(?:[.-][A-Za-z_]\w*)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.]*")
_DIGIT = re.compile(r"\d")
_DIGITS = re.compile(r"\d{3}")
_CALL = re.compile(r"(?:await\b|[A-Za-z_][\w.]*[(\[])")
_HEX = re.compile(r"[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?[\d_.,:]+%?")


def redact(text: str) -> str:
    """Return the text with stars in place of everything that looks like a secret.

    Idempotent. Names, hosts and the words around a secret stay, and so do ids (UUIDs), hashes, paths, numbers
    and words. A harmless value that looks like a secret is replaced too, such as random letters and digits
    after `key=`.

    Example:
        >>> redact("401 for https://ann:pa55@host/v1?key=AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY")
        '401 for https://ann:***@host/v1?key=***'
    """
    if "-----" in text:
        text = _without_pem(text)
    if "://" in text:
        text = _USERINFO.sub(rf"\1{STARS}@", text)
        text = _USER_ALONE.sub(_user_alone, text)
    for hint, pattern in PREFIXED:
        if hint in text:
            text = _bounded(hint, pattern).sub(_token, text)
    if "-u" in text and ":" in text:
        text = _COMMAND.sub(rf"\1{STARS}", text)
    lowered = text.lower()
    if "authorization" in lowered:
        text = _AUTHORIZATION.sub(_authorization, text)
    if any(scheme in lowered for scheme in _SCHEMES):
        text = _SCHEME.sub(_after_scheme, text)
    if "cookie" in lowered:
        text = _COOKIE.sub(_authorization, text)
    text = _without_assigned(text)
    if any(word in lowered for word in _NEAR_WORDS):
        text = _NEAR.sub(_near, text)
    return text


def redact_named(value: str, name: str) -> str:
    """Return a value with its secrets replaced, judged by the name under which it is kept.

    Example:
        >>> redact_named("hunter2", "password"), redact_named("hunter2", "title")
        ('***', 'hunter2')
    """
    value = redact(value)
    assigned = f"{name}={json.dumps(value, ensure_ascii=False)}"  # quotes and line ends in it are escaped
    masked = redact(assigned)
    try:
        return value if masked == assigned else str(json.loads(masked[len(name) + 1 :]))
    except ValueError:  # an escape was cut in two
        return STARS


def looks_random(value: str, *, least: int = 16) -> bool:
    """Return whether a value looks generated and not typed: long, mixed, and of high entropy.

    UUIDs, numbers, paths, dates and names made of words do not look random.

    Args:
        value: The value without quotes.
        least: Values with fewer characters never look random.
    """
    value = value[:_LONGEST_JUDGED]
    if len(value) < least or _UUID.search(value) or _NUMBER.fullmatch(value) or "***" in value:
        return False
    digits = sum(char.isdigit() for char in value)
    if _HEX.fullmatch(value):
        return len(value) >= 32 and 0 < digits < len(value) and _entropy(value) >= 3.0
    if "/" in value and "+" not in value and max(map(len, value.split("/"))) < 20:
        return False
    changes = sum(_kind(one) != _kind(other) for one, other in itertools.pairwise(value))
    if digits == 0 and not (any(map(str.isupper, value[1:])) and any(map(str.islower, value))):
        return False
    if _is_worded(value):
        return False
    return _entropy(value) >= min(3.5, math.log2(len(value)) - 0.75) and changes >= len(value) / 8


def _is_worded(value: str) -> bool:
    """Whether the value is words and short numbers joined by punctuation: `gpt-4o-mini-2024-07-18`."""
    parts = [part for part in re.split(r"[-_./+=~$]", value) if part]
    return len(parts) > 1 and all(
        part.isdigit()
        or (part.isalpha() and (part.islower() or part.isupper() or part.istitle()))
        or len(part) <= 4
        for part in parts
    )


def _kind(char: str) -> int:
    return 0 if char.islower() else 1 if char.isupper() else 2 if char.isdigit() else 3


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())


def _without_pem(text: str) -> str:
    """Replace the contents of private keys, even if the beginning or end of a key was cut off."""
    kept: list[str] = []
    at = 0
    last_end = max((end.start() for end in _PEM_END.finditer(text)), default=-1)
    while (begin := _PEM_BEGIN.search(text, at)) is not None:
        end = _PEM_END.search(text, begin.end()) if begin.end() <= last_end else None
        if end is None:
            body = _PEM_BODY.match(text, begin.end())
            assert body is not None
            kept += [text[at : begin.end()], STARS if body.group().strip() else ""]
            at = body.end()
            continue
        kept += [text[at : begin.end()], STARS, end.group()]
        at = end.end()
    text = "".join([*kept, text[at:]]) if kept else text
    end = _PEM_END.search(text)
    if end is not None and _PEM_BEGIN.search(text, 0, end.start()) is None:
        head = text[: end.start()]
        body = _PEM_BODY_BEFORE.search(head, max(0, len(head) - MARGIN))
        if body is not None:
            text = head[: body.start()] + STARS + text[end.start() :]
    return text


def _token(match: re.Match[str]) -> str:
    """Keep the issuer's prefix, so that people can tell which key it was."""
    found = match.group()
    prefix = re.match(r"[A-Za-z0-9]{1,10}[-_.]", found)
    return (prefix.group() if prefix and len(found) > 2 * prefix.end() else found[:4]) + STARS


def _user_alone(match: re.Match[str]) -> str:
    return f"{match[1]}{STARS}@" if looks_random(match[2]) else match[0]


def _authorization(match: re.Match[str]) -> str:
    is_done = _is_harmless(match[2]) or match[1].rstrip().endswith(STARS)
    return match[0] if is_done else match[1] + STARS


def _after_scheme(match: re.Match[str]) -> str:
    value = match[2]
    is_plain = value.isdigit() or (_DOTTED.fullmatch(value) and not any(map(str.isdigit, value)))
    is_plain = (
        is_plain
        or value.rstrip(".:").isalpha()
        or STARS in value
        or value.startswith(("http:", "https:", "realm="))
    )
    is_prose = match[1].lower().startswith(("token", "basic")) and not looks_random(value, least=10)
    return match[0] if is_plain or (is_prose and not value.endswith("=")) else match[1] + STARS


def _without_assigned(text: str) -> str:
    """Replace values in `name = value`, `name: value` and `"name": "value"` if the name means a secret."""
    kept, at, done = [], 0, 0
    while (operation := _OPERATION.search(text, at)) is not None:
        at = operation.end()
        before = text[max(done, operation.start() - 64) : operation.start()]
        if not _plain(before[-24:]).endswith(_ENDS) or (name := _NAME.search(before)) is None:
            continue
        value = (
            _VALUE_IN_QUOTES.match(text, at) or _VALUE_AFTER_QUOTE.match(text, at) or _VALUE.match(text, at)
        )
        if value is None or _is_harmless(value[2]):
            continue
        sign = text[operation.start() - len(name[0]) - 1 : operation.start() - len(name[0])]
        if _is_secret(name[0], value, operation[0], is_query=sign in ("?", "&")):
            is_whole = value.re is _VALUE_IN_QUOTES
            rest = None if is_whole else _REST_OF_VALUE.match(text, value.end())
            kept += [text[done:at], value[1], STARS]
            at = done = value.end() if rest is None else rest.end()
    return "".join([*kept, text[done:]])


def _is_secret(name: str, value: re.Match[str], operation: str, *, is_query: bool) -> bool:
    quote, text = value.groups()
    if _plain(name.rpartition(".")[2]) in HARMLESS_NAMES:
        return False
    if _plain(name).endswith(SURE):
        if quote or is_query:
            return not text.startswith(_PLACEHOLDERS)
        after = value.string[value.end() : value.end() + 1]
        return _is_typed(text, after, is_prose=":" in operation or ">" in operation)
    if is_query and len(text) >= 6:
        return any(map(str.isdigit, text)) or looks_random(text)
    if _UUID.fullmatch(text):
        return name.lower().endswith("token")
    return looks_random(text, least=10 if quote else 16)


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _is_typed(value: str, after: str, *, is_prose: bool) -> bool:
    """Whether an unquoted text is a value and not source code (`api_key=settings.api_key,`) or prose."""
    if _CALL.match(value) or value.startswith(_PLACEHOLDERS):
        return False
    digits = _DIGIT if is_prose else _DIGITS
    is_name = _IDENTIFIER.fullmatch(value) and not digits.search(value)
    if is_name and (after in (")", ",", "]") or "." in value):
        return False
    return not is_prose or any(map(str.isdigit, value)) or looks_random(value, least=10)


def _near(match: re.Match[str]) -> str:
    return match[1] + STARS if looks_random(match[2]) else match[0]


def _is_harmless(value: str) -> bool:
    bare = value.strip("()[]{}<>.:!?").lower()
    return (
        not bare
        or bare in HARMLESS_VALUES
        or _NUMBER.fullmatch(bare) is not None
        or set(bare) <= {"*", "x", "…", "."}
    )
