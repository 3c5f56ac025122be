"""The judge's own use of the device: whether it can compute there, and what it means when it cannot.

Where a device is missing or fails, no result may come from another one, and neither task nor submission is to blame.
Where its memory is full, the submission is to blame if it holds the memory, and else the task, which needs too much.
"""

from __future__ import annotations

import torch

#: Errors that a kernel causes in its own context, as CUDA and HIP number them: illegal address, assert, hardware stack
#: error, illegal instruction, misaligned address, invalid address space, invalid program counter, launch failure.
_KERNELS_OWN = frozenset({700, 710, 714, 715, 716, 717, 718, 719})
_OUT_OF_MEMORY = 2
#: Messages of libraries that get no memory for themselves.
_NO_WORKSPACE = (
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_ALLOC_FAILED"),
    *("HIPBLAS_STATUS_ALLOC_FAILED", "HIPBLAS_STATUS_NOT_INITIALIZED", "rocblas_status_memory_error"),
)
#: Memory that others may hold without being to blame: contexts, workspaces of libraries, and what is written between
#: two calls to empty the device's caches.
_OTHERS_BYTES = 2 << 30
#: Sum of the first 64 squares, from 0.
_KNOWN_SUM = 85344


class DeviceFailed(Exception):
    """The device is missing or does not work. The daemon evaluates again, on another device if it can."""


class DeviceFull(Exception):
    """The judge got no memory of the device, because a submission holds it."""


#: Exceptions for missing memory, inside the task's functions and outside of them.
OUT_OF_MEMORY = (DeviceFull, torch.OutOfMemoryError)


def device_of(asked: str) -> str:
    """The device that a request asks for; `auto` is cuda where torch finds one."""
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return asked


def require_device(device: str) -> None:
    """Make sure that this process computes right on its device, else raise DeviceFailed.

    Tasks make their inputs on the CPU if torch finds no device. Without this they would be judged there.
    """
    if device == "cpu":
        return
    try:
        numbers = torch.arange(64, device=device)
        computed = int((numbers * numbers).sum())
    except Exception as error:
        raise DeviceFailed(f"this process cannot use device {device!r}: {type(error).__name__}: {error}") from error
    if computed != _KNOWN_SUM:
        raise DeviceFailed(f"device {device!r} computes {computed} where {_KNOWN_SUM} is right")


def raise_for_device(error: Exception) -> None:
    """Raise what an error of one of the task's functions means, if the device or the submission is to blame for it.

    Raises:
        DeviceFull: a submission holds the memory that was missing.
        DeviceFailed: the device does not work any more, and the task's own kernels are not the reason.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch lacks it
        return
    if _is_out_of_memory(error):
        held = held_by_others()
        if held is not None:
            raise DeviceFull(held) from error
        return
    try:
        require_device("cuda")
    except DeviceFailed as failed:
        # In a broken context each call repeats the error that broke it. A device that is only full is not broken.
        codes = {_code(error), _code(failed.__cause__)}
        if not codes & _KERNELS_OWN and not _is_out_of_memory(failed.__cause__):
            raise


def device_failure(device: str) -> DeviceFailed | None:
    """Why this process can no longer compute on its device; None: it can, the device is full, or it is not in use.

    A worker may be the first that hears of a device's end.
    """
    if device == "cpu" or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch lacks it
        return None
    try:
        require_device(device)
    except DeviceFailed as failed:
        return None if _is_out_of_memory(failed.__cause__) else failed
    return None


#: What other processes held before any submission was loaded: contexts, and what no job of ours is.
_expected_bytes = 0


def expect_others() -> None:
    """What other processes hold now is no submission's.

    Raises:
        DeviceFailed: the device does not say.
    """
    global _expected_bytes  # noqa: PLW0603 of this process and its device
    _expected_bytes = _bytes_of_others()[0]


def _bytes_of_others() -> tuple[int, int]:
    """Bytes of the device that other processes hold, and all that it has."""
    try:
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved(), total
    except Exception as error:
        raise DeviceFailed(f"the device does not report its memory: {type(error).__name__}: {error}") from error


def held_by_others() -> str | None:
    """That other processes hold too much of the device's memory, as a sentence; None: they do not.

    Raises:
        DeviceFailed: the device does not say.
    """
    others, total = _bytes_of_others()
    others -= _expected_bytes
    if others <= _OTHERS_BYTES:
        return None
    return (
        f"the submission keeps {others / (1 << 30):.1f} of the device's {total / (1 << 30):.1f} GiB of memory, and "
        "nothing is left to judge it with"
    )


def _is_out_of_memory(error: BaseException | None) -> bool:
    return (
        isinstance(error, torch.OutOfMemoryError)
        or _code(error) == _OUT_OF_MEMORY
        or any(words in str(error) for words in _NO_WORKSPACE)
    )


def _code(error: BaseException | None) -> int | None:
    """The number of a driver's error, as `torch.AcceleratorError` has it."""
    return getattr(error, "error_code", None)
