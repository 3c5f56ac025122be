"""Every solution and template of every task keeps its promise on a device: right ones pass, wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.gpu.bench import Machine, Trial, Verdict, lacking, trials

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")

#: What the judge may say to a wrong solution: that its answer is wrong, or that it is none.
REFUSALS = ("wrong_answer", "runtime_error", "rejected")


@pytest.mark.parametrize("trial", list(trials()), ids=str)
def test_a_file_keeps_its_promise(trial: Trial, machine: Machine, verdict: Callable[[Trial], Verdict]) -> None:
    """Solutions of both kinds and templates, on the small cases, judged by the harness as a submission is."""
    reason = lacking(trial, machine)
    if reason is not None:
        pytest.skip(reason)
    found = verdict(trial)
    expected = REFUSALS if trial.kind == "wrong" else ("accepted",)
    assert found.verdict in expected, f"{trial.path}: {found.verdict}: {found.message}"
