"""Task functions in a child process, with OpenTelemetry set up as a program does. Spans go to a file as JSON."""

from __future__ import annotations

import logging
import os
import threading

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from tidegate import Pool, Tidegate, Timings

log = logging.getLogger("traced")
provider = TracerProvider()
if "SPANS" in os.environ:
    file = open(os.environ["SPANS"], "a", buffering=1)  # noqa: SIM115 - open as long as the process
    exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
app = Tidegate(
    pools=[Pool(concurrency=4, poll_interval=0.05)],
    timings=Timings(lease=2, promote=0.05, stop_grace=0.5, drain_grace=5, stall_limit=5),
)


@app.task
def in_a_child() -> int:
    with trace.get_tracer("traced").start_as_current_span("inside the child"):
        log.warning("logged in the child")
    other = threading.Thread(target=log.warning, args=["logged in a thread of the child"])
    other.start()
    other.join()
    note.enqueue_sync()
    return os.getpid()


@app.task
async def note() -> None:
    log.warning("logged on the loop")
