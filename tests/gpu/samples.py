"""A judge that keeps every call. It must not look at a device before the judge does: no use of one survives a fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.harness.judge import benchmark
from tasks.harness.judge.audit import Audit, Sample, details


def keep_samples() -> None:
    """In a judge that has not begun: put every call into the details of its case."""

    def with_samples(samples: Sequence[Sample], found: Audit) -> Mapping[str, Any]:
        kept = [[sample.claim_ns, sample.outside_ns, int(sample.exclusive)] for sample in samples]
        return {**details(samples, found), "samples": kept}

    setattr(benchmark, "details", with_samples)  # noqa: B010 mypy refuses the other form
