"""When a case is timed again, and which of its times counts; the times themselves are made up."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.harness.judge import benchmark
from tasks.harness.judge.audit import Audit, Sample
from tasks.harness.judge.benchmark import Benchmark, Timed
from tasks.harness.judge.stopping import Timing

_CLAIM_NS = 50_000


def _audit(timing: str, *, noise_ns: float, excess_ns: float = 0.0) -> Audit:
    return Audit(counted=(float(_CLAIM_NS),), timing=timing, noise_ns=noise_ns, excess_ns=excess_ns)


NOISY = _audit("measured", noise_ns=9_000.0)
LESS_NOISY = _audit("measured", noise_ns=7_000.0)
CONTRADICTED = _audit("measured", noise_ns=2_000.0, excess_ns=20_000.0)
AUDITED = _audit("audited", noise_ns=1_000.0)


@pytest.mark.parametrize(
    ("audits", "used", "counts"),
    [
        ((AUDITED, NOISY), 1, AUDITED),
        ((NOISY, AUDITED, NOISY), 2, AUDITED),
        ((NOISY, NOISY, NOISY, AUDITED), 4, AUDITED),
        ((NOISY, LESS_NOISY, NOISY, NOISY, AUDITED), 4, LESS_NOISY),
        ((CONTRADICTED, CONTRADICTED, AUDITED), 2, CONTRADICTED),
        # What is contradicted has one more chance, however noisy the first row was.
        ((NOISY, CONTRADICTED, AUDITED), 2, CONTRADICTED),
    ],
)
def test_noise_gets_three_more_chances_and_a_contradiction_one(
    monkeypatch: pytest.MonkeyPatch, audits: Sequence[Audit], used: int, counts: Audit
) -> None:
    """The row with the least doubt counts."""
    rows = iter(audits)
    made: list[Audit] = []
    reported: list[tuple[Audit, Any]] = []

    def time_row(*_: object, **__: object) -> Timed:
        made.append(next(rows))
        sample = Sample(claim_ns=_CLAIM_NS, outside_ns=2 * _CLAIM_NS)
        return Timed(samples=[sample], audit=made[-1], known={})

    def report(
        _run: object, _index: object, _samples: object, audit: Audit, *, known: dict[str, Any], **_: object
    ) -> None:
        reported.append((audit, known["timed_again"]))

    case = SimpleNamespace(
        warm_up=lambda: None,
        check_last=lambda: None,
        forget_controls=lambda: None,
        input_bytes=64 << 10,
        controls_ns=[[1.0]],
        details={},
    )
    monkeypatch.setattr(benchmark, "TimedCase", lambda *_, **__: case)
    request: Any = SimpleNamespace(seed=1, rejects_forged_times=True)
    made_up: Any = None
    timed = Benchmark(request, device="cpu", workers=made_up, readings=made_up, calibration=None)
    monkeypatch.setattr(timed, "time", time_row)
    monkeypatch.setattr(timed, "_report", report)
    run: Any = SimpleNamespace(
        deadline_ns=10**18,
        cases=[1],
        kind="benchmark",
        request=SimpleNamespace(timing=Timing()),
        phase=lambda _name: nullcontext(),
    )
    timed.run(run, 0, made_up)
    assert len(made) == used
    assert reported == [(counts, used - 1)]
