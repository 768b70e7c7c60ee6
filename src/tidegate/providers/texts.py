"""Reads an error's message for people. Providers change their wording, so it never changes a verdict.

The text can give a more specific reason for a request that is refused anyway. There is one exception, which
depends on numbers and not on wording: a request larger than the whole limit can never succeed.
"""

from __future__ import annotations

import re

from tidegate.providers.meaning import (
    AUTH,
    CONTENT_POLICY,
    CONTEXT_LENGTH,
    INVALID,
    NO_MONEY,
    RATE_LIMIT,
    TOO_LARGE,
    USED_UP,
    Finding,
    Meaning,
)

_LONGEST_TEXT = 4_000
_SHARPER: tuple[tuple[Meaning, re.Pattern[str]], ...] = (
    (
        # OpenAI, vLLM, Ollama; Anthropic; Cohere; Bedrock; Moonshot; Gemini; TGI; DashScope.
        CONTEXT_LENGTH,
        re.compile(
            r"context (?:length|window|size)|prompt is too long|too many (?:input )?tokens"
            r"|input is too long|token limit|maximum number of tokens|max_new_tokens"
            r"|range of input length|max(?:imum)? (?:input|prompt) (?:length|tokens)",
            re.I,
        ),
    ),
    (
        # Anthropic: a balance, and a limit that the account set itself.
        NO_MONEY,
        re.compile(
            r"credit balance|usage limits?\b.*regain access|insufficient (?:balance|credit)", re.IGNORECASE
        ),
    ),
    (
        CONTENT_POLICY,
        re.compile(
            r"safety system|content (?:management )?policy|content moderation|moderation policy", re.I
        ),
    ),
    (
        AUTH,
        re.compile(
            r"(?:invalid|incorrect|expired|revoked) (?:api )?key\b"
            r"|api key (?:not (?:valid|found)|(?:has |is )?(?:expired|revoked|disabled))",
            re.I,
        ),
    ),
)
_USAGE_LIMIT = re.compile(
    # Plans and trials. Cohere: "limited to 1000 API calls / month"; Bedrock: "Too many tokens per day"
    r"\busage limit"
    r"|(?:daily|weekly|monthly) (?:(?:request|token|message|api) )?(?:limit|quota|cap|allowance)\b"
    r"|(?:calls|requests|tokens) ?(?:/|per|a) ?month\b|too many (?:tokens|requests) per day",
    re.IGNORECASE,
)
"""Limits over a day or longer. Such errors concern the account, and waiting a minute does not help."""
# OpenAI and Groq: "Request too large … on tokens per min (TPM): Limit 30000, Requested 34307."
_LARGER_THAN_THE_BUCKET = re.compile(r"\bLimit:? (\d{1,15}),.{0,60}?\bRequested:? (\d{1,15})\b", re.ASCII)


def sharpened(finding: Finding, text: str) -> Finding:
    """Return the finding with a more specific reason, if the error's text gives one."""
    text = text[:_LONGEST_TEXT]
    if finding.meaning == RATE_LIMIT and _never_fits(text):
        return finding._replace(meaning=TOO_LARGE, by=f"{finding.by}, requested over the whole limit")
    if finding.meaning == RATE_LIMIT and _USAGE_LIMIT.search(text):
        return finding._replace(meaning=USED_UP, by=f"{finding.by}, a usage limit by its text")
    if finding.meaning == INVALID:
        for meaning, wording in _SHARPER:
            if wording.search(text):
                return finding._replace(meaning=meaning, by=f"{finding.by}, by its text")
    return finding


def _never_fits(text: str) -> bool:
    found = _LARGER_THAN_THE_BUCKET.search(text)
    return found is not None and int(found[2]) > int(found[1])
