"""What a spooled result looks like: exact, checked to the last byte, and without what no commit needs."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runner.base.model import FinalJob, JobResult, Mode, ValidationJob
from runner.daemon.outcomes.spool.format import (
    DROPPED,
    Decoded,
    UnreadableError,
    bare,
    decode,
    encode,
    without_artifacts,
)
from tests.unit import samples
from tests.unit.daemon.outcomes.spool.samples import ANY_TEXT, job, result, results


def written(found: JobResult, slot: str = "cpu0") -> bytes:
    """The whole content of a result's file."""
    content = encode(job(), found, slot=slot)
    whole = b"".join(content.parts)
    assert len(whole) == content.size_bytes
    return whole


def read(whole: bytes, *, with_artifacts: bool = True) -> Decoded:
    """What is in a file."""
    return decode(io.BytesIO(whole), with_artifacts=with_artifacts)


@settings(deadline=None)
@given(found=results(), slot=ANY_TEXT)
@example(found=result(pair="\ud83d\ude00", lone="\ud800", nul="\x00", negative_zero=-0.0, nan=float("nan")), slot="")
def test_a_result_comes_back_exactly(found: JobResult, slot: str) -> None:
    """Floats to the bit, bytes, NUL, lone surrogates, even two that look like a pair; repr tells -0.0 and NaN too."""
    decoded = read(written(found, slot))
    assert repr(decoded.result) == repr(found)
    assert decoded.slot == slot


def test_the_job_comes_back_without_source_task_and_seed() -> None:
    """What commits and fences a result is there; what strangers or users must not find on the disk is not."""
    whole = written(result())
    assert read(whole).job == bare(job())
    assert (job().secret_seed, job().task != {}, job().code != b"") == (123456, True, True)
    for secret in (b"the source of a stranger", b"the answer", b"123456"):
        assert secret not in whole


def test_a_group_keeps_its_batch_and_the_results_of_its_items() -> None:
    """Its reference and candidates are not on the disk."""
    group = samples.group(reference="the reference")
    found = replace(result(), items=({"id": 4, "verdict": "accepted", "message": "\x00\ud800", "speedup": 1.5},))
    whole = b"".join(encode(group, found, slot="cpu0").parts)
    assert read(whole).job == bare(group)
    assert read(whole).result == found
    assert b"the reference" not in whole


def test_a_validation_and_an_evaluation_of_a_final_keep_their_submission() -> None:
    """Its code and its task are not on the disk."""
    every = {**vars(job()), "submission_id": None, "validates": 4}
    common = {name: value for name, value in every.items() if name not in ("secret_seed", "options", "demand")}
    validation = ValidationJob(**{**common, "mode": Mode.VALIDATION})
    final = FinalJob(**{**every, "mode": Mode.FINAL, "final_id": 5, "round": 6})
    for kept in (validation, final):
        whole = b"".join(encode(kept, result(), slot="cpu0").parts)
        assert read(whole).job == bare(kept)
        assert b"the source of a stranger" not in whole
        assert b"the answer" not in whole


def test_what_the_store_would_write_is_what_is_kept() -> None:
    """Tuples, other mappings, times and keys that are no strings end as in the database."""
    report = {"t": (1, 2), "m": MappingProxyType({"x": 1}), "at": datetime(2026, 1, 2, tzinfo=UTC), "k": {1: True}}
    kept = read(written(result(**report))).result.report
    assert kept == {"t": [1, 2], "m": {"x": 1}, "at": "2026-01-02T00:00:00+00:00", "k": {"1": True}}


def test_what_json_has_no_word_for_is_refused() -> None:
    """The caller learns it at once, and not when the database is back."""
    with pytest.raises(TypeError, match="object"):
        written(result(value=object()))


def test_a_result_without_its_artifacts_says_which() -> None:
    """The report names the traces that were dropped."""
    less = without_artifacts(result(b"x", b"y", slot="cpu0"))
    assert less.artifacts == ()
    assert less.report == {"slot": "cpu0", DROPPED: ["trace-0", "trace-1"]}


@given(st.data())
def test_whatever_is_damaged_is_found_out(data: st.DataObject) -> None:
    """A cut, a flipped bit, bytes added: nothing of it is taken for a result."""
    whole = written(result(b"trace", stdout="hello"))
    damage = data.draw(st.sampled_from(["cut", "flip", "add"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    match damage:
        case "cut":
            damaged = whole[:at]
        case "flip":
            damaged = whole[:at] + bytes([whole[at] ^ (1 << data.draw(st.integers(0, 7)))]) + whole[at + 1 :]
        case _:
            damaged = whole + data.draw(st.binary(min_size=1, max_size=3))
    try:
        found = read(damaged)
    except UnreadableError:
        return
    # A flipped bit in the blanks of the first line changes nothing that counts.
    assert found == read(whole)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"format": "something else"}, "it is no kernel-runner result"),
        ({"format": "kernel-runner result", "version": 2}, "it is of version 2, expected 1"),
        ({"format": "kernel-runner result", "version": 1}, "lacks document_bytes or sha256"),
        ({"format": "kernel-runner result", "version": 1, "document_bytes": 10**12, "sha256": ""}, "bytes are missing"),
        ({"format": "kernel-runner result", "version": 1, "document_bytes": -5, "sha256": ""}, "damaged"),
        ([1], "it is no kernel-runner result"),
        (10**100, "it is no kernel-runner result"),
    ],
)
def test_a_header_that_lies_costs_nothing(header: object, reason: str) -> None:
    """Neither memory nor the daemon."""
    with pytest.raises(UnreadableError, match=reason):
        read(json.dumps(header).encode() + b"\n{}\n")
