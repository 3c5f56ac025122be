"""Advice from a submission's source: what a reader says is passed on, bounded, and a reader that fails is no matter."""

from __future__ import annotations

import json
import os

import pytest

from runner.evaluation import source_advice
from runner.evaluation.source_advice import advise, installed

SAID = {
    "classification": "hacked",
    "matched_patterns": [
        {"pattern": "TIMER_MONKEYPATCH", "severity": "critical", "evidence": "e" * 999, "field": "code"},
        *[{"pattern": "MORE", "severity": "low", "evidence": ""}] * 99,
    ],
}


def test_what_the_reader_says_is_passed_on_and_bounded() -> None:
    """It has the source on stdin; of many long remarks some are kept, and how many there were."""
    script = f"import sys; assert sys.stdin.read() == 'the code'; print({json.dumps(json.dumps(SAID))})"
    said = advise(b"the code", found="0.3.2", reader=script)
    assert (said["tool"], said["version"], said["classification"], said["count"]) == (
        "kernelguard",
        "0.3.2",
        "hacked",
        100,
    )
    assert len(said["findings"]) == 50
    assert said["findings"][0] == {"pattern": "TIMER_MONKEYPATCH", "severity": "critical", "evidence": "e" * 300}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("while True: pass", "did not finish within 1 s"),
        ("raise SystemExit(3)", "JSONDecodeError"),
        ("while True: print('[' * 100_000)", "did not answer as expected"),
        ("print('[]')", "TypeError"),
        ("""print('{"matched_patterns": [1], "classification": ""}')""", "AttributeError"),
    ],
)
def test_a_reader_that_fails_is_reported_and_stops_nothing(script: str, words: str) -> None:
    """Too slow, gone, or with another answer than is known."""
    said = advise(b"", found="9", limit_s=1, reader=script)
    assert words in said["error"]


def test_the_reader_has_nothing_of_the_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable, no descriptor beside its three, its cores, and bounds on all that it could take."""
    monkeypatch.setenv("KERNEL_RUNNER_DATABASE_URL", "postgresql://a-secret@localhost/")
    ours = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(ours, True)
    script = """
found = {"environment": dict(os.environ), "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1]}
found["cores"] = sorted(os.sched_getaffinity(0))
names = ("CPU", "AS", "FSIZE", "CORE", "NOFILE", "NPROC")
found["limits"] = [resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names]
print(json.dumps({"classification": json.dumps(found), "matched_patterns": []}))
"""
    try:
        said = advise(b"", found="9", reader=script, cores=(min(os.sched_getaffinity(0)),))
    finally:
        os.close(ours)
    found = json.loads(said["classification"])
    # The interpreter sets one itself where there is no locale.
    assert set(found["environment"]) <= {"LC_CTYPE"}
    assert found["descriptors"] == [0, 1, 2]
    assert found["cores"] == [min(os.sched_getaffinity(0))]
    assert found["limits"] == [[most, most] for most in (11, 1 << 30, 8 << 20, 0, 32, 0)]


def test_without_the_package_no_reader_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional."""
    monkeypatch.setattr(source_advice, "PACKAGE", "no-such-package-anywhere")
    assert installed() is None
