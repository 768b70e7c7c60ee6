"""Task functions that use a real GPU, in child processes."""

from __future__ import annotations

import os

import cuda
from tidegate import Pool, Tidegate, Timings

app = Tidegate(
    pools=[
        Pool(
            concurrency=int(os.environ.get("CONCURRENCY", "1")),
            poll_interval=0.05,
            gpus=tuple(gpu for gpu in os.environ.get("GPUS", "").split(",") if gpu),
            vram_limit=os.environ.get("VRAM_LIMIT"),
        )
    ],
    timings=Timings(lease=5.0, beat=0.5, reap=0.5, promote=0.05),
)


@app.task(max_attempts=1)
def visible() -> tuple[int, list[str]]:
    """Return this process and the GPUs that the driver shows it."""
    return os.getpid(), cuda.device_uuids()


@app.task(max_attempts=1)
def hold(size: int) -> int:
    """Allocate GPU memory and keep it until the process ends."""
    cuda.allocate(size)
    return os.getpid()


@app.task(max_attempts=1)
def exhaust() -> int:
    """Hold some GPU memory, then ask for more than the GPU has."""
    cuda.allocate(256 << 20)
    return cuda.allocate(cuda.free_and_total()[1] + (1 << 30))


@app.task(max_attempts=1)
def exhaust_with_torch() -> None:
    """The same through PyTorch."""
    import torch

    torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    torch.empty(cuda.free_and_total()[1] + (1 << 30), dtype=torch.uint8, device="cuda")


@app.task(max_attempts=1)
def process() -> int:
    return os.getpid()
