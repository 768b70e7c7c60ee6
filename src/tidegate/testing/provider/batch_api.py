"""A simulated Batch API on loopback: many requests in one job, done within 24 hours for half the price.

It has the routes and fields of OpenAI's Batch API, with one simplification: a file is uploaded as the body of
its request. Hours pass as fast as its settings say.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from tidegate.testing.provider.listener import HOST, ProviderListener
from tidegate.testing.provider.messages import json_response
from tidegate.testing.provider.refusals import invalid_request

WINDOW_HOURS = 24.0
PRICE = 0.002
"""Dollars for one request outside of a batch."""
BATCH_PRICE = PRICE / 2
_UNFINISHED = ("in_progress", "cancelling")


@dataclass(frozen=True, slots=True)
class BatchApiSettings:
    """How a simulated Batch API behaves."""

    hour_seconds: float = 0.5
    """How long a simulated hour takes, in real seconds."""
    requests_per_hour: float = 10.0
    """How many requests of a batch are done in a simulated hour, in their order. The rest expires."""
    latency_seconds: float = 0.0
    """Seconds between the creation of a batch and the response to the request."""
    port: int = 0


@dataclass(slots=True)
class _Batch:
    """A batch that was submitted."""

    id: str
    requests: list[dict[str, Any]]
    metadata: dict[str, str]
    created_at: float
    cancelled_at: float | None = None
    billed: set[str] = field(default_factory=set)


class SimulatedBatchApi:
    """A Batch API of a provider. Use it with `async with`.

    Args:
        settings: How it behaves.
        monotonic: The clock, in seconds.

    Example:
        async with SimulatedBatchApi(BatchApiSettings(hour_seconds=0.1)) as api:
            client = httpx2.AsyncClient(base_url=api.url)
            ...
            assert api.paid_twice() == []
    """

    def __init__(
        self,
        settings: BatchApiSettings | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or BatchApiSettings()
        self._now = monotonic
        self._files: dict[str, str] = {}
        self._batches: dict[str, _Batch] = {}
        self._listener = ProviderListener(self._serve)

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://{HOST}:{self._listener.port}/v1"

    @property
    def submitted(self) -> int:
        """How many batches were created."""
        return len(self._batches)

    @property
    def cancelled(self) -> list[str]:
        """The batches that were cancelled."""
        return [batch.id for batch in self._batches.values() if batch.cancelled_at is not None]

    def paid(self) -> Counter[str]:
        """Return how often each request was paid for, by its `custom_id`."""
        for batch in self._batches.values():
            self._done(batch)
        return Counter(name for batch in self._batches.values() for name in batch.billed)

    def paid_twice(self) -> list[str]:
        """Return the requests that were paid for more than once."""
        return sorted(name for name, times in self.paid().items() if times > 1)

    def dollars(self) -> float:
        """Return what all requests have cost."""
        return self.paid().total() * BATCH_PRICE

    async def __aenter__(self) -> Self:
        await self._listener.open(self._settings.port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._listener.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._route(Request(scope, receive))
        await response(scope, receive, send)

    async def _route(self, request: Request) -> Response:
        match request.method, request.url.path.strip("/").split("/"):
            case "POST", ["v1", "files"]:
                return self._keep_file((await request.body()).decode())
            case "GET", ["v1", "files", name, "content"] if (
                batch_id := name.partition("-")[2]
            ) in self._batches:
                return PlainTextResponse(self._output(self._batches[batch_id]))
            case "POST", ["v1", "batches"]:
                return await self._create(await request.json())
            case "GET", ["v1", "batches"]:
                shown = [self._shown(batch) for batch in self._batches.values()]
                return json_response(200, {"object": "list", "data": shown})
            case "GET", ["v1", "batches", batch_id] if batch_id in self._batches:
                return json_response(200, self._shown(self._batches[batch_id]))
            case "POST", ["v1", "batches", batch_id, "cancel"] if batch_id in self._batches:
                return self._cancel(self._batches[batch_id])
            case method, _:
                return invalid_request(f"Unknown URL: {method} {request.url.path}", status=404).response()

    def _keep_file(self, text: str) -> Response:
        file_id = f"file-{len(self._files) + 1}"
        self._files[file_id] = text
        return json_response(200, {"id": file_id, "object": "file", "purpose": "batch"})

    async def _create(self, wanted: Mapping[str, Any]) -> Response:
        text = self._files.get(wanted.get("input_file_id", ""))
        if text is None:
            return invalid_request("There is no such input file.").response()
        batch = _Batch(
            f"batch_{len(self._batches) + 1}",
            [json.loads(line) for line in text.splitlines()],
            dict(wanted.get("metadata") or {}),
            self._now(),
        )
        self._batches[batch.id] = batch
        await asyncio.sleep(self._settings.latency_seconds)
        return json_response(200, self._shown(batch))

    def _cancel(self, batch: _Batch) -> Response:
        if self._status(batch) not in _UNFINISHED:
            return invalid_request(f"{batch.id} is {self._status(batch)}.", status=409).response()
        batch.cancelled_at = self._now()
        return json_response(200, self._shown(batch))

    def _hours(self, batch: _Batch) -> float:
        """Return for how many simulated hours the provider has worked on a batch."""
        until = self._now() if batch.cancelled_at is None else batch.cancelled_at
        return min(WINDOW_HOURS, (until - batch.created_at) / self._settings.hour_seconds)

    def _done(self, batch: _Batch) -> list[dict[str, Any]]:
        """Return the requests of a batch that are done. Each of them has been paid for."""
        count = int(self._hours(batch) * self._settings.requests_per_hour)
        done = batch.requests[:count]
        batch.billed.update(request["custom_id"] for request in done)
        return done

    def _status(self, batch: _Batch) -> str:
        if len(self._done(batch)) == len(batch.requests):
            return "completed"
        if batch.cancelled_at is not None:
            return "cancelled"
        return "expired" if self._hours(batch) >= WINDOW_HOURS else "in_progress"

    def _shown(self, batch: _Batch) -> dict[str, Any]:
        status = self._status(batch)
        return {
            "id": batch.id,
            "object": "batch",
            "status": status,
            "completion_window": "24h",
            "output_file_id": None if status in _UNFINISHED else f"output-{batch.id}",
            "request_counts": {
                "total": len(batch.requests),
                "completed": len(self._done(batch)),
                "failed": 0,
            },
            "metadata": batch.metadata,
        }

    def _output(self, batch: _Batch) -> str:
        """Return the output file of a batch: a line for each request that is done."""
        return "\n".join(json.dumps(_answer(request)) for request in self._done(batch))


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a request in the output file. The answer is the prompt in capital letters."""
    prompt = request["body"]["messages"][-1]["content"]
    body = {"choices": [{"message": {"role": "assistant", "content": prompt.upper()}}]}
    return {"custom_id": request["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}
