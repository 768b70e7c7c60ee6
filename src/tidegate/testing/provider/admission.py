"""Who and what is let through to the model: keys, models, budget, rate, prompt size, content policy."""

from __future__ import annotations

from tidegate.testing.provider.buckets import AccountLimits, Monotonic, RefillingBucket
from tidegate.testing.provider.messages import Request
from tidegate.testing.provider.prompts import Prompt
from tidegate.testing.provider.refusals import (
    Refusal,
    budget_exceeded,
    limit_exceeded,
    policy_violation,
    prompt_too_long,
    unknown_model,
    wrong_key,
)
from tidegate.testing.provider.settings import ProviderSettings


class CallAdmission:
    """Holds what an account has left, and says why a call may not pass.

    Args:
        settings: The rules; replaced by `change`.
        spent_calls: Billed calls that count against the budget already.
        monotonic: Seconds on any clock that never goes back; the limits refill by it.
    """

    def __init__(self, settings: ProviderSettings, *, spent_calls: int, monotonic: Monotonic) -> None:
        self.spent_calls = spent_calls
        """Calls billed, or to be billed when they are answered."""
        self._settings = settings
        self._monotonic = monotonic
        self.limits = self._limits(settings, AccountLimits(requests=None, tokens=None))

    def change(self, settings: ProviderSettings) -> None:
        """Go on with these rules. Buckets keep what is in them, as far as it fits."""
        self.limits = self._limits(settings, self.limits)
        self._settings = settings

    def wrong_key(self, request: Request) -> Refusal | None:
        """Refuse a request without an accepted key."""
        keys = self._settings.api_keys
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = request.headers.get("x-api-key", "")
        return None if not keys or key.strip() in keys else wrong_key(key.strip())

    def unknown_model(self, prompt: Prompt) -> Refusal | None:
        """Refuse a prompt for a model that is not there."""
        known = self._settings.models
        return unknown_model(prompt.model) if known and prompt.model not in known else None

    def refusal_of(self, prompt: Prompt) -> Refusal | None:
        """Return why the prompt may not pass, or take its share of the limits.

        A prompt that is refused for its size or content still uses its share: it is charged on arrival.
        """
        return (
            self._out_of_budget()
            or self._too_fast(prompt)
            or self._too_long(prompt)
            or self._against_policy(prompt)
        )

    def _out_of_budget(self) -> Refusal | None:
        budget = self._settings.budget_calls
        return budget_exceeded() if budget is not None and self.spent_calls >= budget else None

    def _too_fast(self, prompt: Prompt) -> Refusal | None:
        answer = 0 if prompt.param == "input" else prompt.max_tokens or self._settings.answer_max_tokens
        exceeded = self.limits.admit(prompt.tokens + answer)
        return limit_exceeded(exceeded, prompt.model) if exceeded else None

    def _too_long(self, prompt: Prompt) -> Refusal | None:
        window = self._settings.context_window
        return prompt_too_long(prompt.longest, window, prompt.param) if prompt.longest > window else None

    def _against_policy(self, prompt: Prompt) -> Refusal | None:
        texts = [text.casefold() for text in prompt.texts]
        phrases = [phrase.casefold() for phrase in self._settings.blocked_phrases]
        blocked = any(phrase in text for phrase in phrases for text in texts)
        return policy_violation(prompt.param) if blocked else None

    def _limits(self, settings: ProviderSettings, old: AccountLimits) -> AccountLimits:
        def bucket(
            limit: int | None, burst: int | None, before: RefillingBucket | None
        ) -> RefillingBucket | None:
            if limit is None:
                return None
            return RefillingBucket(
                limit=limit,
                window_seconds=settings.window_seconds,
                burst=burst,
                level=None if before is None else before.level,
                monotonic=self._monotonic,
            )

        return AccountLimits(
            requests=bucket(settings.requests_per_minute, settings.requests_burst, old.requests),
            tokens=bucket(settings.tokens_per_minute, settings.tokens_burst, old.tokens),
        )
