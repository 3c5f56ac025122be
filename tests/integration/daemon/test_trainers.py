"""The adapters in the real packages of trainers, through a real daemon; only the evaluation itself is a stand-in.

KERNEL_RUNNER_TRAINERS_PYTHON names a Python that has the packages; by default that of `.venv-trainers`, which
`.ci/setup trainers` makes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon.process import ROOT
from tests.integration.daemon.rig import Rig

PYTHON = Path(os.environ.get("KERNEL_RUNNER_TRAINERS_PYTHON", ROOT / ".venv-trainers" / "bin" / "python"))
#: Imports of torch and of a trainer on a busy machine.
PATIENCE_S = 240.0

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-trainers: `.ci/setup trainers` makes it"),
]


def made_by(trainer: str, url: str) -> Any:  # noqa: ANN401 - JSON
    """What a trainer makes of the candidates."""
    # The classic kind of verifiers has the name of the new one.
    path = [str(ROOT), *([str(PYTHON.parent.parent / "classic")] if trainer == "classic" else [])]
    done = subprocess.run(
        [PYTHON, "-m", "tests.integration.daemon.trainers", trainer, url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_trl_trains_with_the_rewards_and_leaves_faults_out(served: Rig) -> None:
    """Each step has a right, a wrong and an unusable candidate: the mean is of the two that have a reward."""
    made = made_by("trl", served.url)
    assert made["rewards"] == [1.0, 1.0]
    assert "rewards/kernelbook_1/mean" in made["names"]


def test_verl_gets_scores_and_the_mark_of_faults(served: Rig) -> None:
    """A score for each solution; the one without a reward has the score that was asked for, and `fault` 1."""
    made = made_by("verl", served.url)
    assert made == {"rewards": [2.0, 0.0, -9.0], "fault": [0.0, 0.0, 1.0]}


def test_verifiers_records_an_error_and_no_reward(served: Rig) -> None:
    """The framework takes what the method raises for the task's error; the reward stays without a value."""
    made = made_by("verifiers", served.url)
    assert (made["right"], made["wrong"]) == ({"kernel": 2.0}, {"kernel": 0.0})
    assert "EvaluationFaultError" in made["fault"]["error"]
    assert made["fault"]["rewards"] == {"kernel": None}


def test_a_classic_rubric_makes_0_of_a_fault_and_the_state_says_so(served: Rig) -> None:
    """As it does of every exception: samples with an error are to be masked."""
    made = made_by("classic", served.url)
    assert made["right"] == {"reward": 2.0, "error": None}
    assert made["wrong"] == {"reward": 0.0, "error": None}
    assert made["fault"]["reward"] == 0.0
    assert "EvaluationFaultError" in made["fault"]["error"]
