"""Figures, the table they are printed as, and the machine they belong to."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the table: ours, the peers' under the same conditions, and what we want."""

    name: str
    unit: str
    ours: float
    #: Peer -> its figure; absent where it has nothing of the kind.
    peers: Mapping[str, float] = field(default_factory=dict)
    #: In the figure's unit; None: shown for the record.
    target: float | None = None
    higher_is_better: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.ours >= self.target if self.higher_is_better else self.ours <= self.target


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest sample that `share` of all samples do not exceed."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latencies(
    name: str,
    ours_ms: Sequence[float],
    peers_ms: Mapping[str, Sequence[float]] | None = None,
    *,
    p50_ms: float | None = None,
    p99_ms: float | None = None,
) -> list[Figure]:
    """The two lines of a latency: median and 99th percentile."""
    return [
        Figure(
            name=f"{name}, {label}",
            unit="ms",
            ours=percentile(ours_ms, share),
            peers={peer: percentile(samples, share) for peer, samples in (peers_ms or {}).items()},
            target=target,
        )
        for label, share, target in (("p50", 0.5, p50_ms), ("p99", 0.99, p99_ms))
    ]


def table(figures: Iterable[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = ["| figure | ours | procrastinate | pgqueuer | target | reached |", "|---|---|---|---|---|---|"]
    for figure in figures:
        peers = [_number(figure.peers.get(peer)) for peer in ("procrastinate", "pgqueuer")]
        bound = "≥" if figure.higher_is_better else "≤"
        target = "" if figure.target is None else f"{bound} {_number(figure.target)}"
        reached = {True: "yes", False: "no", None: ""}[figure.reached]
        cells = [f"{figure.name}, {figure.unit}", _number(figure.ours), *peers, target, reached]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def machine() -> Mapping[str, str]:
    """When and where."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "cores": f"{os.cpu_count()} ({model})",
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def timed_ms(action: Callable[[], object], times: int) -> list[float]:
    """What an action takes, in milliseconds, so many times; the first time does not count."""
    action()
    taken_ms = []
    for _ in range(times):
        began_s = time.perf_counter()
        action()
        taken_ms.append((time.perf_counter() - began_s) * 1e3)
    return taken_ms
