"""Clients with a transport of Tidegate over a fake network."""

from __future__ import annotations

import time

import httpx2
from permits_in_memory import MemoryPermitSource

from tidegate.calls.settings import CallSettings, Recording
from tidegate.calls.transport.transport import UpstreamTransport
from tidegate.context import Context, RunControl, set_current_context
from tidegate.domain.spec import Priority

URL = "https://api.acme.test/v1/chat/completions"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


class Network:
    """Answers with what it is given, and keeps the requests."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def __call__(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def ok(**body):
    return httpx2.Response(200, json={"usage": USAGE, **body})


def client_with_transport(network, permits=None, **settings):
    settings.setdefault("upstream", "acme")
    transport = UpstreamTransport(
        permits or MemoryPermitSource(), CallSettings(**settings), httpx2.MockTransport(network)
    )
    return httpx2.AsyncClient(transport=transport)


def in_a_run(task_id="01900000-0000-7000-8000-000000000001", *, seconds=float("inf"), run=1, labels=None):
    control = RunControl(scratch_root="/nowhere", scratch_name="x", clock=time.monotonic)
    control.ends_at = control.clock() + seconds
    context = Context(
        control,
        task_id=task_id,
        run=run,
        attempt=1,
        max_attempts=3,
        priority=Priority.INTERACTIVE,
        tenant="acme",
        labels=labels,
    )
    set_current_context(lambda: context)
    return control


def begin_run(port, run, *, labels=None):
    """Begin a run whose steps go to this port."""
    control = in_a_run(run=run, labels=labels)
    control.step_port = port
    return control


def recording_client(network, permits=None, **recording):
    """Return a client whose calls are recorded."""
    return client_with_transport(network, permits, recording=Recording(**recording))


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, *pieces):
        self.pieces = pieces
        self.closed = False

    async def __aiter__(self):
        for piece in self.pieces:
            yield piece

    async def aclose(self):
        self.closed = True


def stream_of(*pieces, **headers):
    headers = {"content-type": "text/event-stream", **headers}
    return httpx2.Response(200, headers=headers, stream=Pieces(*pieces))
