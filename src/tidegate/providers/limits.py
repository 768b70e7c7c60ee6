"""Reads the limits in a response's headers: their size, the remaining amount, and the reset.

Sources: OpenAI, Groq and Azure `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`; Anthropic
`anthropic-ratelimit-{dimension}-{part}`; Mistral `x-ratelimit-{part}-{req,tokens}-minute`; bare
`x-ratelimit-{part}` of Cohere, OpenRouter and others; the IETF draft's `RateLimit`, its exhausted items, and
`RateLimit-Policy` (Hugging Face sends both).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.providers._moments import read_moment, read_number, read_reset
from tidegate.providers.pack import Pack
from tidegate.providers.waits import Headers, exhausted_items, header_pairs

_PART = r"(?P<part>limit|remaining|reset)"
_FORMS = (
    re.compile(rf"(?:x-)?ratelimit-{_PART}(?:-(?P<what>[a-z-]+?))?(?:-(?P<window>minute|day))?", re.ASCII),
    re.compile(rf"anthropic-ratelimit-(?P<what>[a-z-]+?)-{_PART}", re.ASCII),
)
_DIMENSIONS = {
    None: Dimension.REQUESTS,
    "requests": Dimension.REQUESTS,
    "req": Dimension.REQUESTS,
    "tokens": Dimension.TOKENS,
    "input-tokens": Dimension.INPUT_TOKENS,
    "output-tokens": Dimension.OUTPUT_TOKENS,
}
_POLICY = re.compile(r"[;\s]q=(\d{1,9})\s*;\s*w=(\d{1,9})(?![\d.])", re.ASCII)
_WINDOWS = {"minute": 60.0, "day": 86_400.0}


def seen_limits(headers: Headers, *, now: float, pack: Pack | None = None) -> tuple[HeaderLimit, ...]:
    """Return the limits that the headers show, in the order of `Dimension`. Never raises.

    Args:
        headers: The headers, in any form that `server_wait` accepts.
        now: Seconds since the epoch, UTC. A `Date` header is preferred to it.
        pack: The provider's pack, which may know the window of its limit on requests.
    """
    pairs = header_pairs(headers)
    date = read_moment(dict(pairs).get("date", ""), now=now)
    found: dict[Dimension, dict[str, float]] = {}
    for name, value in pairs:
        if name == "ratelimit" and (waits := list(exhausted_items(value))):
            found.setdefault(Dimension.REQUESTS, {}).update(remaining=0.0, reset=max(waits))
        if name == "ratelimit-policy" and (policy := _POLICY.search(value)):
            found.setdefault(Dimension.REQUESTS, {}).update(limit=float(policy[1]), window=float(policy[2]))
        match = next((match for form in _FORMS if (match := form.fullmatch(name))), None)
        if match is None or match["what"] not in _DIMENSIONS:
            continue
        facts = found.setdefault(_DIMENSIONS[match["what"]], {})
        # -1 means "unknown" and is not read as a number.
        reset = match["part"] == "reset"
        number = read_reset(value, now=now if date is None else date) if reset else read_number(value)
        if number is not None:
            facts[match["part"]] = number
        if window := _WINDOWS.get(match.groupdict().get("window") or ""):
            facts["window"] = window
    return tuple(_seen(dimension, found[dimension], pack) for dimension in Dimension if found.get(dimension))


def _seen(dimension: Dimension, facts: Mapping[str, float], pack: Pack | None) -> HeaderLimit:
    of_pack = pack.requests_window_seconds if pack is not None and dimension is Dimension.REQUESTS else None
    return HeaderLimit(
        dimension,
        limit=facts.get("limit"),
        remaining=facts.get("remaining"),
        reset_seconds=facts.get("reset"),
        window_seconds=facts.get("window", of_pack),
    )
