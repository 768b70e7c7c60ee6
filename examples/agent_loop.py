"""An agent loop as you would write it without a queue. Its worker is killed twice, and nothing is paid twice.

    pip install openai "tidegate[testing]"
    python agent_loop.py

The one addition is `record=True`: the transport keeps each response with the task, and a re-run gets it from
the store. The model is a small script in this file; for a real one set OPENAI_BASE_URL and OPENAI_API_KEY.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
from openai import OpenAI

from tidegate import Pool, Tidegate

FOLDER = Path(os.environ.get("AGENT_FOLDER") or tempfile.mkdtemp(prefix="agent-loop-"))
os.environ["AGENT_FOLDER"] = str(FOLDER)  # the worker has the same
PORTS = ["Delfzijl", "Emden", "Husum", "Ribe", "Thyborøn"]

app = Tidegate(f"sqlite:///{FOLDER / 'queue.db'}", pools=[Pool(concurrency=2, poll_interval=0.1)])
provider = app.upstream("openai", max_in_flight=10, record=True)
TOOL = {"type": "function", "function": {"name": "tide_at", "parameters": {"type": "object"}}}


@app.task(upstream=provider, runs_in="thread", backoff=0.5)
def agent(question: str) -> str:
    """Ask the model, do what it asks for, and ask it again, until it has an answer."""
    client = OpenAI(http_client=httpx2.Client(transport=provider.transport(httpx2.HTTPTransport())))
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        answer = client.chat.completions.create(model="simulated-1", messages=messages, tools=[TOOL])  # type: ignore[list-item]
        message = answer.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            tide = tide_at(**json.loads(call.function.arguments))  # type: ignore[union-attr]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": tide})


def tide_at(port: str) -> str:
    """Return the next high tide. At two ports the process dies, the first time."""
    flag = FOLDER / f"killed at {port}"
    if port in ("Husum", "Thyborøn") and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{7 + PORTS.index(port)}:40"


# --- the simulated model ------------------------------------------------------------------------------------

paid: Counter[bytes] = Counter()
"""How often each request was answered, which is what a provider bills."""


class Model(BaseHTTPRequestHandler):
    """Asks for the tide at one port after the other, then answers."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        paid[body] += 1
        tides = [each["content"] for each in json.loads(body)["messages"] if each["role"] == "tool"]
        message: dict[str, Any] = {"role": "assistant"}
        if len(tides) < len(PORTS):
            wanted = {"name": "tide_at", "arguments": json.dumps({"port": PORTS[len(tides)]})}
            message["tool_calls"] = [{"id": f"call-{len(tides)}", "type": "function", "function": wanted}]
        else:
            message["content"] = ", ".join(f"{port} {tide}" for port, tide in zip(PORTS, tides, strict=True))
        document = {"id": "1", "object": "chat.completion", "created": 0, "model": "simulated-1"}
        answer = json.dumps(
            {**document, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
        )
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer.encode())))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


def main() -> None:
    if "OPENAI_BASE_URL" not in os.environ:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ |= {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "OPENAI_API_KEY": "simulated",
        }
    handle = agent.enqueue_sync("When is high tide at the ports from Delfzijl to Thyborøn?")
    worker = subprocess.Popen(
        [sys.executable, "-m", "tidegate.cli", "worker", "agent_loop:app"],
        cwd=Path(__file__).parent,
        stderr=(FOLDER / "worker.log").open("w"),
    )
    try:
        print(handle.result_sync(timeout=200))
    finally:
        worker.terminate()
        worker.wait(20)
    runs = handle.status_sync().run
    print(f"{runs} runs, {paid.total()} calls paid, {paid.total() - len(paid)} of them twice")


if __name__ == "__main__":
    main()
