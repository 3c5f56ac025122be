"""What a spooled result looks like: exact, checked to the last byte, and without what no commit needs."""

from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runner.base.model import FinalJob, GroupJob, Job, JobResult, Mode, ValidationJob
from runner.daemon.outcomes.spool_format import UnreadableError, bare, decode, encode
from tests.unit import samples
from tests.unit.daemon.outcomes.samples import ANY_TEXT, job, result, results


def written(found: JobResult, slot: str = "cpu0") -> bytes:
    """The whole content of a result's file."""
    return encode(job(), found, slot=slot)


@settings(deadline=None)
@given(found=results(), slot=ANY_TEXT)
@example(found=result(pair="\ud83d\ude00", lone="\ud800", nul="\x00", negative_zero=-0.0, nan=float("nan")), slot="")
def test_a_result_comes_back_exactly(found: JobResult, slot: str) -> None:
    """Floats to the bit, bytes, NUL, lone surrogates, even two that look like a pair; repr tells -0.0 and NaN too."""
    decoded = decode(written(found, slot))
    assert repr(decoded.result) == repr(found)
    assert decoded.slot == slot


_SUBMISSION: dict[str, Any] = {**vars(job()), "submission_id": None, "validates": 4}
_VALIDATION = {key: value for key, value in _SUBMISSION.items() if key not in ("secret_seed", "options", "demand")}


@pytest.mark.parametrize(
    "kept",
    [
        job(),
        samples.group(reference="the answer"),
        ValidationJob(**{**_VALIDATION, "mode": Mode.VALIDATION}),
        FinalJob(**{**_SUBMISSION, "mode": Mode.FINAL, "final_id": 5, "round": 6}),
    ],
    ids=lambda kept: type(kept).__name__,
)
def test_a_job_comes_back_without_source_task_and_seed(kept: Job) -> None:
    """What commits and fences a result is there; what strangers or users must not find on the disk is not."""
    items = ({"id": 4, "verdict": "accepted", "message": "\x00\ud800", "speedup": 1.5},)
    found = replace(result(), items=items if isinstance(kept, GroupJob) else ())
    whole = encode(kept, found, slot="cpu0")
    assert (decode(whole).job, decode(whole).result) == (bare(kept), found)
    assert "the answer" in repr(vars(kept))
    for secret in ("the source of a stranger", "the answer", "123456"):
        assert secret.encode() not in gzip.decompress(whole)


def test_what_the_store_would_write_is_what_is_kept() -> None:
    """Tuples, other mappings, times and keys that are no strings end as in the database.

    What JSON has no word for is refused: the caller learns it at once, and not when the database is back.
    """
    report = {"t": (1, 2), "m": MappingProxyType({"x": 1}), "at": datetime(2026, 1, 2, tzinfo=UTC), "k": {1: True}}
    kept = decode(written(result(**report))).result.report
    assert kept == {"t": [1, 2], "m": {"x": 1}, "at": "2026-01-02T00:00:00+00:00", "k": {"1": True}}
    with pytest.raises(TypeError, match="object"):
        written(result(value=object()))


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
        found = decode(damaged)
    except UnreadableError:
        return
    # A flipped bit in what gzip's header says of time and system changes nothing that counts, nor do zeros at the end.
    assert found == decode(whole)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b'{"version": 1}', "it is of version 1, expected 2"),
        (b"[1]", "damaged"),
        (b"{}", "damaged"),
        (b'{"version": 2}', "damaged"),
        (b"[" * 100_000, "damaged"),
    ],
)
def test_what_is_no_result_of_this_release_is_refused(document: bytes, reason: str) -> None:
    """It costs neither memory nor the daemon."""
    with pytest.raises(UnreadableError, match=reason):
        decode(gzip.compress(document))
