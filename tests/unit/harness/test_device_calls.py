"""The judge's memory for inputs on a device: kept from call to call, and given back when a larger one is needed."""

from __future__ import annotations

import pytest
import torch

from tasks.harness.judge.device_calls import DeviceCalls
from tasks.harness.shared.cuda_driver import DriverError

_MIB = 1 << 20


class _Driver:
    """Notes what is allocated and freed."""

    def __init__(self) -> None:
        self.live: list[range] = []
        self.asked = 0

    def allocate(self, nbytes: int) -> range:
        """In blocks of 2 MiB."""
        self.asked += 1
        size = -(-nbytes // (2 * _MIB)) * 2 * _MIB
        self.live.append(range(self.asked << 32, (self.asked << 32) + size))
        return self.live[-1]

    def free(self, address: int) -> None:
        """Of an allocation that is live."""
        (found,) = (each for each in self.live if each.start == address)
        self.live.remove(found)

    def export(self, address: int) -> tuple[bytes, int]:
        """Handles differ."""
        return address.to_bytes(8, "big"), 0


def test_memory_for_inputs_is_kept_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case of the same size, or of a smaller one, costs no allocation and no new mapping in the worker.

    What cannot be shared is given back: else the worker would read its old inputs at the next call of that size.
    """
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    driver = _Driver()
    calls = DeviceCalls.__new__(DeviceCalls)
    vars(calls).update(_driver=driver, _arena=range(0), _retired=range(0), _handle=b"")
    for nbytes in (3 * _MIB, 3 * _MIB, 100, 4 * _MIB):
        calls.reserve(nbytes)
    assert driver.asked == 1
    handle = calls.arena_handle
    with monkeypatch.context() as patched:
        patched.setattr(driver, "export", _refuse)
        for _ in range(2):
            with pytest.raises(DriverError):
                calls.reserve(5 * _MIB)
    assert (len(driver.live), calls.arena_handle) == (1, handle)
    calls.reserve(5 * _MIB)
    assert driver.asked == 4
    assert calls.arena_handle != handle
    # The worker has the earlier one mapped until its next call.
    assert len(driver.live) == 2
    calls.reserve(7 * _MIB)
    assert len(driver.live) == 2
    calls.free()
    assert driver.live == []


def _refuse(_: int) -> tuple[bytes, int]:
    raise DriverError("cuIpcGetMemHandle failed with CUresult 2")
