"""Frames: what goes in comes out, however it is cut, and nonsense is told."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox import protocol
from sandbox.protocol import Decoder, FrameError, Judged, StepResult, encode

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@settings(max_examples=30)
@given(messages=st.lists(st.dictionaries(st.text(), _JSON, max_size=4), max_size=4), data=st.data())
def test_messages_survive_any_cut(messages: list[dict[str, object]], data: st.DataObject) -> None:
    """However the stream is cut into pieces, the same messages come out in order."""
    sent = [{**message, "type": "x"} for message in messages]
    stream = b"".join(encode(message) for message in sent)
    decoder, heard = Decoder(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        heard += list(decoder.feed(stream[:cut]))
        stream = stream[cut:]
    assert heard == sent
    assert decoder.pending_bytes == 0


@given(st.binary(max_size=300))
def test_nonsense_is_a_frame_error_and_nothing_else(noise: bytes) -> None:
    """Random bytes either wait for more or raise FrameError."""
    decoder = Decoder(max_total_bytes=200)
    try:
        for message in decoder.feed(noise):
            assert isinstance(message["type"], str)
    except FrameError:
        pass


@given(_JSON | st.dictionaries(st.text(), _JSON))
def test_parsers_accept_records_or_raise_frame_error(value: object) -> None:
    """Whatever JSON a container sends, each parser returns a record or raises FrameError."""
    message = {**value, "type": "step"} if isinstance(value, dict) else {"type": "step", "name": value}
    for parse in (StepResult.from_message, protocol.Progress.from_message, protocol.Artifact.from_message):
        with pytest.raises(FrameError):
            parse(message)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack("!I", protocol.MAX_FRAME_BYTES + 1), "frame announces"),
        (struct.pack("!I", 3) + b"abc", "not JSON"),
        (struct.pack("!I", 2) + b"[]", "not an object"),
        (struct.pack("!I", 12) + b'{"type": 12}', "not an object with a 'type'"),
        (struct.pack("!I", 50_000) + b"[" * 50_000, "not JSON"),
        (b"x" * 200_000, "bytes of report"),
    ],
)
def test_each_fault_has_its_sentence(data: bytes, reason: str) -> None:
    """Oversized, not JSON, no object, no type, too deep, too much in all."""
    with pytest.raises(FrameError, match=reason):
        list(Decoder(max_total_bytes=100_000).feed(data))


def test_a_judged_step_travels_whole() -> None:
    """A step with a judgement is the same record after its journey through JSON."""
    step = StepResult(
        name="test",
        command="judge",
        start_ns=1,
        duration_ns=2,
        exit_code=None,
        signal=9,
        timed_out=True,
        stdout="ä\n",
        result={"check": "pass"},
        judged=Judged(
            verdict="accepted",
            message=None,
            assurance={"timing": "audited"},
            details={"n": [1, 2]},
            announced=2,
            cases=({"spec": "n: 1", "mean": 1.5},),
        ),
    )
    (message,) = Decoder().feed(encode(step.to_message()))
    assert StepResult.from_message(message) == step
    assert StepResult.from_message(json.loads(json.dumps(step.to_message()))) == step


@pytest.mark.parametrize("cases", [{}, "ab", [1], [[]], None])
def test_cases_are_a_list_of_objects(cases: object) -> None:
    """The protocol does not check their content; the daemon does."""
    step = StepResult(name="test", command="", start_ns=0, duration_ns=0, exit_code=0).to_message()
    judged = {"verdict": "accepted", "message": None, "assurance": {}, "cases": cases}
    with pytest.raises(FrameError, match="cases"):
        StepResult.from_message({**step, "judged": judged})


def test_what_is_no_frame_is_neither_read_nor_made() -> None:
    """Types are checked strictly; of a frame that is too large the sender notices before the receiver must."""
    with pytest.raises(FrameError, match="'done' is bool"):
        protocol.Progress.from_message({"type": "progress", "phase": "x", "done": True, "total": 1})
    with pytest.raises(FrameError, match="not base64"):
        protocol.Artifact.from_message({"type": "artifact", "name": "a", "media_type": "b", "data_b64": "%"})
    with pytest.raises(FrameError, match="at most"):
        encode({"type": "x", "data": "a" * (protocol.MAX_FRAME_BYTES + 1)})
