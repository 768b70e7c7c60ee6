"""The simulated model: decides the outcome of each call and writes it to the ledger."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from tidegate.testing.provider import anthropic_format
from tidegate.testing.provider.admission import CallAdmission
from tidegate.testing.provider.buckets import Monotonic
from tidegate.testing.provider.completions import Completion, generate, render
from tidegate.testing.provider.headers import limit_headers
from tidegate.testing.provider.idempotency import IdempotencyCache
from tidegate.testing.provider.ledger import Ledger, ProviderCall
from tidegate.testing.provider.messages import NoResponse, Request, json_response
from tidegate.testing.provider.outages import OutageKind, OutageSchedule
from tidegate.testing.provider.prompts import Prompt, read_chat, read_embeddings, read_messages
from tidegate.testing.provider.refusals import Refusal, overloaded, unavailable
from tidegate.testing.provider.settings import ProviderSettings

READERS: dict[str, Callable[[bytes], Prompt | Refusal]] = {
    "/v1/chat/completions": read_chat,
    "/v1/embeddings": read_embeddings,
    anthropic_format.PATH: read_messages,
}
"""The paths of model calls."""

_DEFAULT_MODEL = "simulated-1"


@dataclass(slots=True)
class _Receipt:
    """A call before its outcome is known."""

    id: str
    received_at: float
    request: Request
    prompt: Prompt | Refusal


class SimulatedModel:
    """Admits, refuses or serves calls as the settings say.

    Args:
        settings: Limits, delays and faults; `change` replaces them while running.
        ledger: Records every call once, when its outcome is known.
        schedule: The outages.
        monotonic: Seconds on any clock that never goes back; the limits refill by it.
        clock: Returns seconds since the epoch, UTC, for the ledger.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        *,
        ledger: Ledger,
        schedule: OutageSchedule,
        monotonic: Monotonic = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.in_flight = 0
        """Calls that are being processed, without those left hanging."""
        self._ledger = ledger
        self._schedule = schedule
        self._monotonic = monotonic
        self._clock = clock
        self._idempotency_cache = IdempotencyCache()
        self.reset(settings)

    def reset(self, settings: ProviderSettings) -> None:
        """Start over with these settings: full buckets, the first random numbers, no cached responses."""
        self.settings = settings
        self._admission = CallAdmission(
            settings, spent_calls=self._ledger.count(billed=True), monotonic=self._monotonic
        )
        self._random = _SeededRandom(settings.seed)
        self._idempotency_cache.clear()

    def change(self, settings: ProviderSettings) -> None:
        """Go on with these settings. Buckets keep their level, up to their capacity."""
        self._admission.change(settings)
        if settings.seed != self.settings.seed:
            self._random = _SeededRandom(settings.seed)
        self.settings = settings

    async def call(self, request: Request) -> Response:
        """Respond to one model call and record it in the ledger.

        A completion is billed even if the caller disconnects.
        """
        prompt = READERS[request.path](request.body)
        receipt = _Receipt(f"req_{uuid.uuid4().hex}", self._clock(), request, prompt)
        self.in_flight += 1
        try:
            response = await self._answer(receipt)
        except asyncio.CancelledError:
            self._record(receipt, 0, "stopped")
            raise
        finally:
            self.in_flight -= 1
        return self._with_request_id(response, receipt.id)

    def models(self, request: Request) -> Response:
        """List the models, under the same outages and keys as calls."""
        kind = self._schedule.current
        if kind and kind != "503":
            return _unanswered(kind)
        refusal = unavailable() if kind else self._admission.wrong_key(request)
        names = self.settings.models or (_DEFAULT_MODEL,)
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "tidegate"} for name in names]
        response = refusal.response() if refusal else json_response(200, {"object": "list", "data": data})
        return self._with_request_id(response, f"req_{uuid.uuid4().hex}")

    async def _answer(self, receipt: _Receipt) -> Response:
        if kind := self._schedule.current:
            return self._during_outage(receipt, kind)
        prompt = receipt.prompt
        if isinstance(prompt, Refusal):
            return self._refuse(receipt, prompt)
        if refusal := self._admission.wrong_key(receipt.request) or self._admission.unknown_model(prompt):
            return self._refuse(receipt, refusal)
        outcome, replayed = await self._outcome_of(prompt, receipt.request)
        if isinstance(outcome, Refusal):
            return self._refuse(receipt, outcome)
        self._record(receipt, 200, "replayed" if replayed else "answered", outcome)
        tokens_per_second = self.settings.tokens_per_second
        call_id = receipt.id.removeprefix("req_")
        written = anthropic_format.render_message if _is_anthropic(receipt.request) else render
        return written(
            outcome, prompt, call_id=call_id, pause_seconds=1 / tokens_per_second if tokens_per_second else 0
        )

    async def _outcome_of(self, prompt: Prompt, request: Request) -> tuple[Completion | Refusal, bool]:
        key = request.headers.get("idempotency-key", "")
        if key and self.settings.honour_idempotency:
            return await self._idempotency_cache.get_or_generate(
                key, prompt.content_hash, lambda: self._admit_and_generate(prompt)
            )
        return await self._admit_and_generate(prompt), False

    async def _admit_and_generate(self, prompt: Prompt) -> Completion | Refusal:
        """Admit the prompt and generate its completion, or refuse it. Nothing waits before admission."""
        admission = self._admission
        if refusal := admission.refusal_of(prompt):
            return refusal
        chance = self._random.random_for(prompt.content_hash)
        if chance.random() < self.settings.overload_probability:
            return overloaded(chance.choice(self.settings.overload_statuses))
        admission.spent_calls += 1
        try:
            return await self._generate(prompt, chance.uniform(-1, 1))
        except asyncio.CancelledError:
            admission.spent_calls -= 1
            raise

    async def _generate(self, prompt: Prompt, deviation: float) -> Completion:
        settings = self.settings
        await asyncio.sleep(settings.latency_seconds * (1 + settings.latency_jitter * deviation))
        return await generate(
            prompt,
            max_tokens=prompt.max_tokens or settings.answer_max_tokens,
            dimensions=prompt.dimensions or settings.embedding_dimensions,
            created_at=int(self._clock()),
        )

    def _during_outage(self, receipt: _Receipt, kind: OutageKind) -> Response:
        if kind == "503":
            return self._refuse(receipt, unavailable())
        self._record(receipt, 0, f"outage {kind}")
        return _unanswered(kind)

    def _refuse(self, receipt: _Receipt, refusal: Refusal) -> Response:
        self._record(receipt, refusal.status, refusal.ledger_outcome)
        written_by_anthropic = _is_anthropic(receipt.request)
        return anthropic_format.error_response(refusal) if written_by_anthropic else refusal.response()

    def _record(self, receipt: _Receipt, status: int, outcome: str, answer: Completion | None = None) -> None:
        prompt = receipt.prompt if isinstance(receipt.prompt, Prompt) else None
        self._ledger.record(
            ProviderCall(
                id=receipt.id,
                received_at=receipt.received_at,
                method=receipt.request.method,
                path=receipt.request.path,
                model=prompt.model if prompt else "",
                content_hash=prompt.content_hash if prompt else "",
                idempotency_key=receipt.request.headers.get("idempotency-key", ""),
                status=status,
                billed=outcome == "answered",
                tokens_in=prompt.tokens if prompt else 0,
                tokens_out=answer.tokens_out if answer else 0,
                outcome=outcome,
            )
        )

    def _with_request_id(self, response: Response, call_id: str) -> Response:
        response.headers.update({"x-request-id": call_id, **limit_headers(self._admission.limits)})
        return response


class _SeededRandom:
    """Gives each call its own random source, made from the seed, its content, and how often it came before.

    One shared source would make a run depend on which of two concurrent calls came first.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._times: Counter[str] = Counter()

    def random_for(self, content_hash: str) -> random.Random:
        """Return the source for the next call with this content."""
        self._times[content_hash] += 1
        return random.Random(f"{self._seed} {content_hash} {self._times[content_hash]}")


def _is_anthropic(request: Request) -> bool:
    return request.path == anthropic_format.PATH


def _unanswered(kind: Literal["hang", "refuse", "reset"]) -> NoResponse:
    # A request that arrives while the port closes gets a reset, as if the process had ended.
    return NoResponse("hang" if kind == "hang" else "reset")
