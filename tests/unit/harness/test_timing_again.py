"""When a case is timed again, and which of its times counts; the times themselves are made up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.harness.judge import benchmark
from tasks.harness.judge.audit import Audit, ControlCosts, Sample, audit
from tasks.harness.judge.benchmark import Benchmark, Timed
from tasks.harness.judge.stopping import Stopping, Timing
from tasks.harness.judge.throttling import Readings

_CLAIM_NS = 50_000


def _audit(timing: str, *, noise_ns: float, excess_ns: float = 0.0) -> Audit:
    return Audit(counted=(float(_CLAIM_NS),), timing=timing, noise_ns=noise_ns, excess_ns=excess_ns)


NOISY = _audit("measured", noise_ns=9_000.0)
HOPELESS = _audit("measured", noise_ns=11_000.0)
LESS_NOISY = _audit("measured", noise_ns=7_000.0)
CONTRADICTED = _audit("measured", noise_ns=2_000.0, excess_ns=20_000.0)
HARDLY = _audit("measured", noise_ns=2_000.0, excess_ns=4_000.0)
AUDITED = _audit("audited", noise_ns=1_000.0)


@pytest.mark.parametrize(("ranked", "crowded"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize(
    ("audits", "used", "counts"),
    [
        ((AUDITED, NOISY), 1, AUDITED),
        ((NOISY, AUDITED, NOISY), 2, AUDITED),
        ((NOISY, NOISY, NOISY, AUDITED), 4, AUDITED),
        # Four timings together have half its noise, and a tenth of a claim is needed: it has one more chance.
        ((HOPELESS, HOPELESS, AUDITED), 2, HOPELESS),
        ((HOPELESS, NOISY, AUDITED), 3, AUDITED),
        ((NOISY, LESS_NOISY, NOISY, NOISY, AUDITED), 4, LESS_NOISY),
        ((CONTRADICTED, CONTRADICTED, AUDITED), 2, CONTRADICTED),
        ((HARDLY, HARDLY, HARDLY, AUDITED), 4, AUDITED),
        # What is clearly contradicted has one more chance, however noisy the first row was.
        ((NOISY, CONTRADICTED, AUDITED), 2, CONTRADICTED),
    ],
)
def test_noise_gets_three_more_chances_and_a_contradiction_one(
    monkeypatch: pytest.MonkeyPatch, audits: Sequence[Audit], used: int, counts: Audit, *, ranked: bool, crowded: bool
) -> None:
    """The row with the least doubt counts. There is one where the host is busy beyond hope, or no time ranks."""
    if crowded or not ranked:
        used, counts = 1, audits[0]
    rows = iter(audits)
    made: list[Audit] = []
    reported: list[tuple[Audit, Any]] = []

    def time_row(*_: object, **__: object) -> Timed:
        made.append(next(rows))
        sample = Sample(claim_ns=_CLAIM_NS, outside_ns=2 * _CLAIM_NS)
        return Timed(samples=[sample], controls_ns=[], audit=made[-1], known={}, crowded=crowded)

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
        controls=None,
        details={},
    )
    monkeypatch.setattr(benchmark, "TimedCase", lambda *_, **__: case)
    request: Any = SimpleNamespace(seed=1, rejects_forged_times=True, tolerance=0.1)
    made_up: Any = None
    timed = Benchmark(request, device="cpu", workers=made_up, readings=made_up, calibration=None)
    monkeypatch.setattr(timed, "time", time_row)
    monkeypatch.setattr(timed, "_join", lambda before, _last: before)
    monkeypatch.setattr(timed, "_report", report)
    run: Any = SimpleNamespace(
        deadline_ns=10**18,
        cases=[1],
        kind="benchmark",
        request=SimpleNamespace(timing=Timing(), ranked=ranked),
        phase=lambda _name: nullcontext(),
    )
    timed.run(run, 0, made_up)
    assert len(made) == used
    assert reported == [(counts, used - 1)]


def _timed(*, claim_ns: int, lowered_ns: int, calls: int = 100, controls: int = 300) -> Timed:
    """A timing whose hand-over varies evenly by 6 µs around 20 µs."""
    hand_over = [14_000.0 + 12_000.0 * number / (controls - 1) for number in range(controls)]
    spans = [claim_ns + round(14_000 + 12_000 * number / (calls - 1)) for number in range(calls)]
    samples = [Sample(claim_ns=claim_ns - lowered_ns, outside_ns=span, delayed_ns=0) for span in spans]
    found = audit(samples, controls_ns=[hand_over], tolerance=0.1)
    return Timed(samples=samples, controls_ns=[hand_over], audit=found, known={"repeated": 1, "controls": controls})


@pytest.mark.parametrize(("lowered_ns", "timing"), [(0, "audited"), (2_500, "measured")])
def test_calls_of_all_timings_together_bound_a_short_claim(lowered_ns: int, timing: str) -> None:
    """The noise of one timing is more than a tenth of 20 µs, that of two is less."""
    request: Any = SimpleNamespace(tolerance=0.1, rejects_forged_times=True)
    made_up: Any = None
    judge = Benchmark(request, device="cpu", workers=made_up, readings=made_up, calibration=None)
    one, two = (_timed(claim_ns=20_000, lowered_ns=lowered_ns) for _ in range(2))
    assert one.audit.timing == "measured"
    together = judge._join(one, two)
    assert together.audit.timing == timing
    assert (len(together.samples), together.known) == (200, {"repeated": 2, "controls": 600})
    assert (together.audit.noise_ns or 0.0) < (one.audit.noise_ns or 0.0)


@pytest.mark.parametrize(
    ("varies_ns", "ranked", "calls"), [(500, True, 20), (6_000, True, 86), (30_000, True, 100), (30_000, False, 20)]
)
def test_a_hand_over_that_varies_needs_more_calls(
    monkeypatch: pytest.MonkeyPatch, varies_ns: int, calls: int, *, ranked: bool
) -> None:
    """Equal claims would end a case after 20 calls, and do where its times do not rank.

    Two standard errors of the hand-over are to be 3 % of a claim, less 0.2 µs.
    """
    spans = itertools.cycle((2 * _CLAIM_NS - varies_ns, 2 * _CLAIM_NS + varies_ns))
    controls = ControlCosts.of([[_CLAIM_NS - 30_000.0, _CLAIM_NS + 30_000.0] * 3])
    timed_case: Any = SimpleNamespace(
        sample=lambda: Sample(claim_ns=_CLAIM_NS, outside_ns=next(spans)),
        call_controls=lambda _count: None,
        controls=controls,
        controls_ns=[[float(_CLAIM_NS)] * 6],
        controls_made=6,
        input_bytes=64,
    )
    request: Any = SimpleNamespace(tolerance=0.1, rejects_forged_times=True)
    made_up: Any = None
    timed = Benchmark(request, device="cpu", workers=made_up, readings=Readings(), calibration=None, most_controls=6)
    monkeypatch.setattr(timed, "_sample_of", lambda sample: sample)
    stopping = Stopping.of(None, max_kernel_ns=1e12, max_wall_ns=1e12)
    run: Any = SimpleNamespace(
        deadline_ns=10**18, phase=lambda _name: nullcontext(), request=SimpleNamespace(ranked=ranked)
    )
    made = timed.time(run, timed_case, stopping, start_ns=time.monotonic_ns())
    assert len(made.samples) == calls


@pytest.mark.parametrize(("input_bytes", "repeated"), [(4 << 20, 109), (5 << 20, 60)])
def test_calls_that_are_not_believed_are_made_again_so_often(
    monkeypatch: pytest.MonkeyPatch, input_bytes: int, repeated: int
) -> None:
    """Ten times and once for each that counts; half as often where making inputs takes most of the time."""
    timed_case: Any = SimpleNamespace(
        sample=lambda: Sample(claim_ns=_CLAIM_NS, outside_ns=2 * _CLAIM_NS),
        call_controls=lambda _count: None,
        controls=None,
        controls_ns=None,
        controls_made=0,
        input_bytes=input_bytes,
    )
    request: Any = SimpleNamespace(tolerance=0.1, rejects_forged_times=True)
    made_up: Any = None
    timed = Benchmark(request, device="cpu", workers=made_up, readings=Readings(), calibration=None)
    monkeypatch.setattr(timed, "_sample_of", lambda sample: sample)
    monkeypatch.setattr(timed, "_believes", lambda *_: False)
    run: Any = SimpleNamespace(
        deadline_ns=10**18, phase=lambda _name: nullcontext(), request=SimpleNamespace(ranked=True)
    )
    stopping = Stopping.of(Timing(min_runs=100), max_kernel_ns=1e12, max_wall_ns=1e12)
    made = timed.time(run, timed_case, stopping, start_ns=time.monotonic_ns())
    assert (len(made.samples), made.known["repeated"]) == (100, repeated)


@pytest.mark.parametrize("claim_ns", [_CLAIM_NS, 1_000])
@pytest.mark.parametrize(
    ("calls", "takes_ns", "ranked", "hopeless", "controls"),
    [
        (100, 0, True, False, 300),
        (100, 0, True, True, 100),
        (20, 0, True, False, 60),
        (100, 500_000_000, True, False, 60),
        (100, 0, False, False, 5),
    ],
)
def test_control_calls_at_the_end_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
    claim_ns: int,
    calls: int,
    takes_ns: int,
    controls: int,
    *,
    ranked: bool,
    hopeless: bool,
) -> None:
    """By the calls, since their own error stays, and by time, since a busy host takes long for each.

    There are few where no time ranks, and as many as calls where not even three for each would leave little enough
    noise. A claim that is far too low changes nothing: the judge's clock says that the calls are long enough.
    """
    now = SimpleNamespace(ns=0)
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(monotonic_ns=lambda: now.ns))
    # They vary so much that no number of them is enough.
    costs = SimpleNamespace(
        count=0,
        mean_ns=_CLAIM_NS,
        sd_ns=1e9,
        statistical_ns=lambda **_: 1e9,
        noise_ns=lambda **_: 10_100 if hopeless else 10_000,
    )
    timed_case: Any = SimpleNamespace(controls=costs, input_bytes=64)

    def call_controls(count: int) -> None:
        costs.count += count
        now.ns += takes_ns

    timed_case.call_controls = call_controls
    request: Any = SimpleNamespace(tolerance=0.1, rejects_forged_times=True)
    made_up: Any = None
    timed = Benchmark(request, device="cpu", workers=made_up, readings=Readings(), calibration=None)
    samples = [Sample(claim_ns=claim_ns, outside_ns=2 * _CLAIM_NS)] * calls
    crowded = timed._add_controls(timed_case, samples, ranked=ranked)
    assert (costs.count, crowded) == (controls, takes_ns > 0)
