"""The few calls of NVIDIA's driver library that the GPU tests need, through ctypes: nothing else to install."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class CudaError(RuntimeError):
    """The driver refused a call. The message begins as PyTorch's do."""


@functools.cache
def _driver() -> Any:
    library = ctypes.CDLL("libcuda.so.1")
    _check(library, library.cuInit(0))
    return library


def missing_gpu() -> str:
    """Return why there is no GPU to test with; empty if there is one."""
    try:
        return "" if device_uuids() else "the NVIDIA driver finds no GPU"
    except OSError:
        return "no NVIDIA driver is installed: libcuda.so.1 cannot be loaded"
    except CudaError as error:
        return f"the NVIDIA driver cannot be used: {error}"


def device_uuids() -> list[str]:
    """Return the GPUs that this process may see, as `GPU-…`, in the order of their numbers."""
    driver, count = _driver(), ctypes.c_int()
    _check(driver, driver.cuDeviceGetCount(ctypes.byref(count)))
    return [_uuid(driver, number) for number in range(count.value)]


def free_and_total() -> tuple[int, int]:
    """Return the free bytes of the first GPU, and all of them."""
    driver, free, total = _in_context(), ctypes.c_size_t(), ctypes.c_size_t()
    _check(driver, driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    return free.value, total.value


def allocate(size: int) -> int:
    """Allocate bytes on the first GPU until the process ends; return their address.

    Raises:
        CudaError: "CUDA out of memory…" if they are not free, as PyTorch calls it.
    """
    driver, address = _in_context(), ctypes.c_uint64()
    code = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    if code == _OUT_OF_MEMORY:
        raise CudaError(f"CUDA out of memory. Tried to allocate {size >> 20} MiB")
    _check(driver, code)
    return address.value


@functools.cache
def _in_context() -> Any:
    """Return the driver, with a context on the first GPU for this thread."""
    driver, device, context = _driver(), ctypes.c_int(), ctypes.c_void_p()
    _check(driver, driver.cuDeviceGet(ctypes.byref(device), 0))
    _check(driver, driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(driver, driver.cuCtxSetCurrent(context))
    return driver


def _uuid(driver: Any, number: int) -> str:
    device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    _check(driver, driver.cuDeviceGet(ctypes.byref(device), number))
    _check(driver, driver.cuDeviceGetUuid(ctypes.byref(raw), device))
    text = bytes(raw).hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _check(driver: Any, code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        raise CudaError(f"CUDA error: {(text.value or b'unknown').decode()} ({code})")
