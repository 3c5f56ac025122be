"""What differs between the public and the secret run of a submission: this list, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from runner.base.model import Mode
from runner.evaluation import secret
from runner.evaluation.build_plan import make_build_plan
from runner.task_format.model import Harness
from sandbox.protocol import PairRequest
from tests.unit import samples

EVALUATION = Path(secret.__file__).parent
TASK = samples.task(hidden=2, seed=5)
JOBS = {is_secret: samples.job(secret=is_secret) for is_secret in (False, True)}


def payload(*, is_secret: bool) -> dict[str, Any]:
    """What the judge is asked, with a mode by its name."""
    request = samples.submission(samples.context(TASK, job=JOBS[is_secret])).plan.request
    assert isinstance(request, PairRequest)
    modes = {mode["name"]: mode for mode in request.payload["modes"]}
    return {**request.payload, "modes": modes}


def test_hidden_cases_seed_and_fewer_calls_are_all_that_the_judge_is_told() -> None:
    """Every other key of the two requests is the same."""
    public, private = payload(is_secret=False), payload(is_secret=True)
    assert {key for key in public if public[key] != private[key]} == {"modes", "seed"}
    changed = {
        (name, key)
        for name, mode in public["modes"].items()
        for key in {*mode, *private["modes"][name]}
        if mode.get(key) != private["modes"][name].get(key)
    }
    assert changed == {("test", "cases"), ("leaderboard", "timing"), ("leaderboard", "ranked")}


@pytest.mark.parametrize("harness", Harness)
def test_container_and_build_are_the_same(harness: Harness) -> None:
    """Both runs of a submission share its build."""
    contexts = [samples.context(samples.task(harness=harness), job=job) for job in JOBS.values()]
    public, private = (samples.submission(context).plan.spec for context in contexts)
    assert public == private
    assert make_build_plan(contexts[0], cpus=(1,)) == make_build_plan(contexts[1], cpus=(1,))
    assert {secret.run_of(job) for job in JOBS.values()} == secret.runs_of_build(JOBS[False])
    assert secret.runs_of_build(samples.job(mode=Mode.TEST)) == {secret.run_of(JOBS[False])}


def test_no_other_module_asks_whether_a_job_is_secret() -> None:
    """A new difference belongs into this module and this list."""
    reads = re.compile(r"\bjob\.secret\b|\.secret_seed\b")
    asking = {path.name for path in EVALUATION.rglob("*.py") if reads.search(path.read_text(encoding="utf-8"))}
    assert asking == {"secret.py"}
