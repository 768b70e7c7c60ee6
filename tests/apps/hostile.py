"""Task functions that misbehave in every way that a child process must survive."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import fakecuda

from tidegate import Context, Fixed, Pool, Tidegate, Timings

app = Tidegate(
    pools=[
        Pool(
            concurrency=int(os.environ.get("CONCURRENCY", "4")),
            poll_interval=0.05,
            memory_limit=int(os.environ["MEMORY"]) if "MEMORY" in os.environ else None,
            gpus=tuple(int(gpu) for gpu in os.environ.get("GPUS", "").split(",") if gpu),
        )
    ],
    timings=Timings(
        lease=1.0, beat=0.25, reap=0.3, promote=0.05, stop_grace=0.4, drain_grace=3.0, cancel_poll=0.05
    ),
)
QUICK = Fixed(0.05)
OUT = Path(os.environ.get("OUT", "/nonexistent"))


def note(name: str, value: object) -> None:
    with (OUT / name).open("a") as file:
        file.write(json.dumps(value) + "\n")
        file.flush()


@app.on_child_start
def load_model() -> None:
    note("child_starts", os.getpid())


@app.task(max_attempts=3, backoff=QUICK)
def die(how: str) -> str:
    note("deaths", how)
    if how == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit 1":
        os._exit(1)
    if how == "exit 0":
        os._exit(0)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "kill parent":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(30)
    return "survived"


@app.task(max_attempts=1)
def leave(how: str) -> str:
    if how == "exit 0":
        sys.exit(0)
    if how == "exit 3":
        sys.exit(3)
    raise {"interrupt": KeyboardInterrupt, "generator": GeneratorExit, "base": BaseException}[how]("x")


@app.task
def normal(number: int) -> int:
    return number


@app.task
async def pause(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@app.task(timeout=0.6, max_attempts=1)
def deaf(how: str) -> None:
    note("pids", os.getpid())
    if how == "sleep":
        time.sleep(3600)
    if how == "recv":
        ours, _theirs = socket.socketpair()
        ours.recv(1)
    if how == "except Exception":
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                continue
    if how == "except BaseException":
        while True:
            try:
                time.sleep(0.01)
            except BaseException:
                continue
    if how == "regex":
        re.match(r"(a+)+$", "a" * 40 + "b")


CHILD = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(1000)"


@app.task(timeout=0.8, max_attempts=1)
def spawn(how: str) -> None:
    pids = str(OUT / "pids")
    code = [sys.executable, "-c", CHILD, pids]
    if how == "run":
        subprocess.run(code)
    if how == "shell":
        subprocess.run(f'{sys.executable} -c "{CHILD}" {pids}; true', shell=True)
    if how == "new session":
        subprocess.Popen(code, start_new_session=True).wait()
    if how == "deaf to signals":
        deaf_code = (
            "import signal; signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN); " + CHILD
        )
        subprocess.run([sys.executable, "-c", deaf_code, pids])
    if how == "full pipe":
        subprocess.run([sys.executable, "-c", "print('x' * 10_000_000)"], stdout=subprocess.PIPE)
        subprocess.run(code)


@app.task(max_attempts=3, backoff=QUICK, memory_limit="300MiB")
def eat(how: str) -> str:
    note("eaten", how)
    if how == "at once":
        keep = bytearray(10**9)
        time.sleep(30)
        return str(len(keep))
    if how == "slowly":
        parts = []
        for _ in range(100):
            parts.append(bytearray(b"x" * 10**7))
            time.sleep(0.02)
    if how == "grandchild":
        subprocess.run([sys.executable, "-c", "x = bytearray(b'x' * 10**9); import time; time.sleep(30)"])
    if how == "MemoryError":
        raise MemoryError
    return "full"


@app.task
def use_cuda() -> int:
    return fakecuda.run()


BROKEN: list[bool] = []


@app.task(max_attempts=1)
def maybe_broken(number: int) -> int:
    if number == 0:
        BROKEN.append(True)
        raise RuntimeError("CUDA error: device-side assert triggered")
    if BROKEN:
        raise RuntimeError("this process is broken")
    return os.getpid()


@app.task(max_attempts=1)
def replace_me(ctx: Context) -> int:
    ctx.replace_process("I do not feel well")
    return os.getpid()


@app.task(max_attempts=1)
async def replace_my_pool_process(ctx: Context, how: str) -> int:
    ctx.replace_process("I do not feel well")
    if how == "fails":
        raise RuntimeError("as said")
    return os.getpid()


@app.task
def gpu() -> str:
    """Return this process's GPU once a process of each GPU has started a task, or after 10 s."""
    mine, out = os.environ.get("CUDA_VISIBLE_DEVICES", ""), Path(os.environ["OUT"])
    (out / f"gpu-{mine}").touch()
    ends_at = time.monotonic() + 10
    while len(list(out.glob("gpu-*"))) < len(os.environ["GPUS"].split(",")) and time.monotonic() < ends_at:
        time.sleep(0.02)
    return mine


@app.task(runs_in="process")
async def async_in_child(ctx: Context, number: int) -> tuple[int, int]:
    ctx.progress(number, 10, "here")
    await asyncio.sleep(0.01)
    return number, os.getpid()


@app.task(runs_in="process", backoff=QUICK, max_attempts=2)
async def ask_again(ctx: Context) -> int:
    if ctx.run == 1:
        ctx.retry(after=0.05, charge=False, reason="not yet")
    return ctx.run


@app.task
def listens(ctx: Context) -> None:
    note("listening", os.getpid())
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.01)


@app.task(cancel_grace=0.2)
def deaf_to_cancel() -> None:
    note("listening", os.getpid())
    time.sleep(3600)


@app.task
def deaf_forever() -> None:
    note("listening", os.getpid())
    time.sleep(3600)


@app.task(max_attempts=3, backoff=QUICK)
async def async_poison(ctx: Context) -> None:
    note("poison", [ctx.run, os.getpid()])
    os.kill(os.getpid(), signal.SIGKILL)


_lock = threading.Lock()
threading.Thread(target=lambda: (_lock.acquire(), time.sleep(3600)), daemon=True).start()
