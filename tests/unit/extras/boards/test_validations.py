"""What a validation script's line must hold, and what becomes of one that does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.base.model import Verdict
from runner.extras.boards.kinds.validation import MAX_LINE_CHARS, STEP, end_of
from sandbox.protocol import StepResult

LINE: dict[str, Any] = {
    "passed_shapes": 2,
    "total_shapes": 3,
    "fully_validated": False,
    "geomean_sync_wall_speedup": 1.5,
    "results": [{"n": 1}],
}


def ended(line: object, **changes: object) -> StepResult:
    """A script that has printed this last, as JSON unless it is a text."""
    last = line if isinstance(line, str) else json.dumps(line)
    fields: dict[str, Any] = {
        "name": STEP,
        "command": "python3 validation.py",
        "start_ns": 0,
        "duration_ns": 900_000_000_000,
        "exit_code": 0,
        "stdout": f"a library's word\n{last}\n\n",
        "stderr": "first\nlast words\n",
        **changes,
    }
    return StepResult(**fields)


def changed(**keys: object) -> dict[str, Any]:
    """The line with other values; those of None are kept."""
    return {**LINE, **keys}


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        changed(passed_shapes=3, fully_validated=True),
        # All may pass without that word, and what cannot be timed has no speed-up.
        changed(passed_shapes=3, geomean_sync_wall_speedup=None),
        changed(passed_shapes=0, geomean_sync_wall_speedup=0),
        changed(schema_version="v1", device="a GPU"),
        {key: LINE[key] for key in ("passed_shapes", "total_shapes", "fully_validated")},
    ],
)
def test_a_right_line_is_kept_whole(line: dict[str, Any]) -> None:
    """Keys that are not in the contract stay in the result."""
    end = end_of(ended(line))
    assert (end.verdict, end.error) == (Verdict.ACCEPTED, None)
    assert end.report is not None
    counts = ("passed_shapes", "total_shapes", "fully_validated", "geomean_sync_wall_speedup")
    assert vars(end.report) == vars(end.report) | {"result": line, **{name: line.get(name) for name in counts}}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Segmentation fault", "it is not JSON"),
        ("[1]", "it is JSON, but no object"),
        (json.dumps(changed(passed_shapes=float("nan"))), "it holds NaN"),
        (json.dumps(LINE).replace("1.5", "-Infinity"), "it holds -Infinity"),
        (json.dumps(LINE).replace("1.5", "1e999"), "it holds 1e999, which is too large"),
        (json.dumps(LINE).replace("2", "9" * 5000), "it is not JSON"),
        ('{"a": ' + "[" * 20_000 + "]" * 20_000 + "}", "it is n"),
        (changed(results=[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]), "it is nested more than 16 deep"),
        (changed(results=["x" * MAX_LINE_CHARS]), "characters, expected 262144 at most"),
        (changed(passed_shapes=4), "4 of 3 shapes passed"),
        (changed(fully_validated=True), "fully_validated is true, but 2 of 3 shapes passed"),
        (changed(passed_shapes="2"), "passed_shapes: found '2', expected an integer"),
        (changed(passed_shapes=True), "passed_shapes: found True, expected an integer"),
        (changed(passed_shapes=-1), "passed_shapes: found -1, expected a number of at least 0"),
        (changed(total_shapes=2**31), "total_shapes: found 2147483648, expected a number of at most 1000000"),
        (changed(passed_shapes=0, total_shapes=0), "total_shapes: found 0, expected a number above 0"),
        (changed(fully_validated=1), "fully_validated: found 1, expected true or false"),
        (changed(geomean_sync_wall_speedup=-1), "geomean_sync_wall_speedup: found -1, expected a number of at least 0"),
        (changed(geomean_sync_wall_speedup=1e308), "wall_speedup: found 1e+308, expected a number of at most"),
        (changed(geomean_sync_wall_speedup="2"), "geomean_sync_wall_speedup: found '2', expected"),
        (changed(results={}), "results: found {}, expected a list"),
        ({"passed_shapes": 1}, "total_shapes: found nothing"),
        ({"status": "failed", "failure_reason": "no GPU"}, "it says that the validation failed: no GPU"),
    ],
)
def test_a_wrong_line_fails_with_what_is_wrong(line: object, reason: str) -> None:
    """The sentence names the key, what was found and what was expected."""
    end = end_of(ended(line))
    sentence = "the validation script's last line of output is no result"
    assert (end.verdict, end.report, end.sentence) == (Verdict.RUNTIME_ERROR, None, sentence)
    assert end.error is not None
    assert end.error.startswith(f"{sentence}: ")
    assert reason in end.error
    assert len(end.error) < 1200


@pytest.mark.parametrize(
    ("step", "verdict", "message"),
    [
        (ended(LINE, exit_code=None, signal=9, timed_out=True), Verdict.TIME_LIMIT, "at its time limit (900 s)"),
        (
            ended(LINE, exit_code=None, signal=9, output_limit=True, stdout_bytes=70, stderr_bytes=7),
            Verdict.OUTPUT_LIMIT,
            "killed after writing 77 bytes of output",
        ),
        (ended(LINE, exit_code=None, signal=11), Verdict.RUNTIME_ERROR, "ended by signal 11: last words"),
        (ended(LINE, exit_code=3), Verdict.RUNTIME_ERROR, "ended with exit code 3: last words"),
        (ended({"failure_reason": "no GPU"}, exit_code=1), Verdict.RUNTIME_ERROR, "ended with exit code 1: no GPU"),
        (ended("", stdout=""), Verdict.RUNTIME_ERROR, "last line of output is no result: there is none"),
        (ended("", exit_code=1, stderr=""), Verdict.RUNTIME_ERROR, "ended with exit code 1: it printed no reason"),
    ],
)
def test_a_script_that_does_not_end_well_fails_whatever_it_printed(
    step: StepResult, verdict: Verdict, message: str
) -> None:
    """A right line before a bad end counts for nothing."""
    end = end_of(step)
    assert (end.verdict, end.report) == (verdict, None)
    assert end.error is not None
    assert message in end.error
