"""The load, in a process of its own: requests by the clock, whatever becomes of those before, and followers.

python -m benchmarks.web.load WHAT '{"port": …}'

Latencies count from when a request was due, so a server that falls behind cannot hide it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

from benchmarks.limit import percentiles
from benchmarks.web.site import TOKEN

CONNECTIONS = 64
_HEADERS = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"


class Connections:
    """Keep-alive connections of one server, taken in turn."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def open(self) -> None:
        for _ in range(CONNECTIONS):
            self._free.put_nowait(await asyncio.open_connection("127.0.0.1", self._port))

    async def ask(self, request: bytes) -> bytes:
        """Send a request when a connection is free; return the answer's body."""
        reader, writer = await self._free.get()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")), head
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        body = await reader.readexactly(int(length))
        self._free.put_nowait((reader, writer))
        return body


def posted(number: int) -> bytes:
    text = "The tide came in, and went out again. " * 10
    body = json.dumps({"task": "note", "args": {"number": number, "text": text}})
    head = f"POST /api/v1/tasks HTTP/1.1\r\n{_HEADERS}Content-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


async def submits(*, port: int, rate: float, n: int) -> dict[str, float]:
    """Submit `n` tasks, `rate` a second."""
    return await _by_the_clock(port, rate, n, posted)


async def statuses(*, port: int, rate: float, n: int) -> dict[str, float]:
    """Ask for the status of 100 stored tasks, `n` times, `rate` a second."""
    connections = Connections(port)
    await connections.open()
    ids = [json.loads(await connections.ask(posted(number)))["task_id"] for number in range(100)]
    asked = [f"GET /api/v1/tasks/{task_id} HTTP/1.1\r\n{_HEADERS}\r\n".encode() for task_id in ids]
    return await _by_the_clock(port, rate, n, lambda number: asked[number % len(asked)])


async def _by_the_clock(port: int, rate: float, n: int, request: Callable[[int], bytes]) -> dict[str, float]:
    connections = Connections(port)
    await connections.open()
    began_at = time.monotonic()
    took: list[float] = []

    async def one(number: int) -> None:
        due_at = began_at + number / rate
        await asyncio.sleep(due_at - time.monotonic())
        await connections.ask(request(number))
        took.append((time.monotonic() - due_at) * 1000)

    async with asyncio.TaskGroup() as group:
        for number in range(n):
            group.create_task(one(number))
    return percentiles(took)


async def followers(*, port: int, tasks: int, each: int, gap: float, seconds: float) -> dict[str, float]:
    """Follow `tasks` tasks by `each` readers; return how far behind the emitting bodies they are.

    The first second is not counted: the last followers have just come then.
    """
    connections = Connections(port)
    await connections.open()
    count = tasks * each
    first_at = time.time() + 4 + count / 100
    ends_at = first_at + seconds
    lags: list[float] = []
    readers = []
    for number in range(tasks):
        args = {"first_at": first_at + gap * number / tasks, "gap": gap, "until": ends_at}
        body = json.dumps({"task": "tick", "args": args})
        head = f"POST /api/v1/tasks HTTP/1.1\r\n{_HEADERS}Content-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        task_id = json.loads(await connections.ask(request))["task_id"]
        for _ in range(each):
            readers.append(asyncio.create_task(_follow(port, task_id, first_at + 1, lags)))
            await asyncio.sleep(0.002)
    late = time.time() - first_at
    assert late < 0, f"the followers came {late:.1f} s too late"
    ended = await asyncio.gather(*readers)
    assert all(ended), "a stream had no end"
    expected = count * (seconds - 1) / gap
    assert len(lags) >= 0.9 * expected, f"{len(lags)} chunks came where {expected:g} were due"
    return percentiles(lags)


async def _follow(port: int, task_id: str, from_at: float, lags: list[float]) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /api/v1/tasks/{task_id}/events HTTP/1.1\r\n{_HEADERS}\r\n".encode())
    is_chunk = False
    while line := await reader.readline():
        if line.startswith(b"event: "):
            is_chunk = line == b"event: chunk\n"
            if line == b"event: end\n":
                writer.close()
                return True
        elif is_chunk and line.startswith(b"data: "):
            emitted_at = json.loads(line[6:])["data"]
            if emitted_at >= from_at:
                lags.append((time.time() - emitted_at) * 1000)
    return False


WORK = {"submits": submits, "statuses": statuses, "followers": followers}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(WORK[sys.argv[1]](**json.loads(sys.argv[2])))))
