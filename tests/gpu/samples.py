"""A judge that keeps every call. It must not look at a device before the judge does: no use of one survives a fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.harness.judge import benchmark
from tasks.harness.judge.audit import Audit, Sample, details
from tasks.harness.judge.hand_over import Bound, DeviceCosts


def keep_samples() -> None:
    """In a judge that has not begun: put every call into the details of its case, and how many bytes it returned."""
    output_bytes: list[int] = []
    bound = DeviceCosts.bound

    def noting(self: DeviceCosts, **call: Any) -> Bound:  # noqa: ANN401 its own arguments
        output_bytes[:] = [call["output_bytes"]]
        return bound(self, **call)

    def with_samples(samples: Sequence[Sample], found: Audit) -> Mapping[str, Any]:
        kept = [[sample.claim_ns, sample.outside_ns, int(sample.exclusive)] for sample in samples]
        return {**details(samples, found), "samples": kept, "output_bytes": output_bytes[0] if output_bytes else None}

    setattr(DeviceCosts, "bound", noting)  # noqa: B010 mypy refuses the other form
    setattr(benchmark, "details", with_samples)  # noqa: B010 mypy refuses the other form
