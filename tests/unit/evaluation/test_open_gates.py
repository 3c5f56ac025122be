"""What a worker has found out of a device is not tried again, until a run did not get that far."""

from __future__ import annotations

from dataclasses import replace

from runner.base.model import Device, Slot
from runner.evaluation.open_gates import OpenGates
from sandbox.protocol import PairRequest, StepsRequest
from tests.unit import samples

_SLOT = replace(samples.SLOT, devices=(Device(index=0, uuid="GPU-1", name="NVIDIA H100", vendor="nvidia"),))
_REQUEST = PairRequest(payload={"device": "cuda"})


def _is_told(gates: OpenGates, slot: Slot = _SLOT) -> bool:
    request = gates.with_gates(_REQUEST, slot)
    assert isinstance(request, PairRequest)
    return request.payload == {"device": "cuda", "streams_wait": True}


def test_an_open_gate_is_remembered_for_its_devices() -> None:
    """Other devices are tried by themselves, and a run without devices is told nothing.

    One that did not get that far is a reason to try again: a closed gate, and a judge without any step. One that times
    nothing says nothing of a gate.
    """
    gates = OpenGates()
    assert not _is_told(gates)
    gates.note(_SLOT, [{"module": {}}, {"gate": "open"}])
    gates.note(_SLOT, [{"system": {}}])
    assert _is_told(gates)
    other = replace(_SLOT, devices=(replace(_SLOT.devices[0], uuid="GPU-2"),))
    assert not _is_told(gates, other)
    gates.note(samples.SLOT, [{"gate": "open"}])
    assert not _is_told(gates, samples.SLOT)
    steps = StepsRequest(files={}, steps=())
    assert gates.with_gates(steps, _SLOT) is steps
    for details in ([{"gate": "a stream does not wait"}], []):
        gates.note(_SLOT, [{"gate": "open"}])
        gates.note(_SLOT, details)
        assert not _is_told(gates)
