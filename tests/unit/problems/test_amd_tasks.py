"""The tasks of AMD's boards on one device: their inputs, structure and special values."""

from __future__ import annotations

import pytest
import torch

from tests.unit.problems.bench import Bench
from tests.unit.problems.oracle import TASKS


@pytest.mark.parametrize("bench", ["amd_identity"], indirect=True)
def test_a_copy_is_of_any_finite_number(bench: Bench) -> None:
    """Both signs, zeros, subnormal and large numbers, no infinity and no NaN; an output that nobody wrote."""
    source, output = bench.generate({"size": 1 << 18, "seed": 3})
    assert source.isfinite().all()
    assert output.isnan().all()
    # Of 63,488 finite numbers a sample of four times as many misses few.
    assert source.view(torch.int16).unique().numel() > 60000
    assert source.abs().max() > 65000
    assert ((source != 0) & (source.abs() < 2**-14)).float().mean() > 0.02
    assert (source.view(torch.int16) == -0x8000).any()


@pytest.mark.parametrize("bench", ["amd_identity"], indirect=True)
@pytest.mark.parametrize("solution", ["templates/torch_copy.py", "solutions/correct/words.py"])
def test_every_number_is_copied(bench: Bench, solution: str) -> None:
    """All 65,536 patterns, infinities and NaN too, are accepted as they are and arrive bit by bit."""
    source = torch.arange(1 << 16).to(torch.int16).view(torch.float16)
    data = (source, torch.zeros_like(source))
    output = bench.kernel((TASKS / bench.folder.name / solution).read_text())(data)
    assert torch.equal(output.view(torch.int16), source.view(torch.int16))
    assert bench.check(data, output) == (True, "")
