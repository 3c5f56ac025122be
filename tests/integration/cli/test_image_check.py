"""`image check` in a real container, and its questions on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runner.cli import image_probe
from sandbox.host.engine import DockerEngine
from tests.integration.cli.conftest import Call
from tests.support.waiting import PATIENCE_S


def test_the_hosts_root_file_system_is_looked_into(
    call: Call, docker_engine: DockerEngine, evaluation_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a submission finds it: torch for CPUs, a compiler, all settings attested. An absent image is a failure."""
    for name, value in (
        ("DOCKER_HOST", docker_engine.base_url),
        ("KERNEL_RUNNER_EVAL_PYTHON", str(evaluation_python)),
        ("KERNEL_RUNNER_STATE_DIR", str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)
    said = call("image", "check", "--gpu", "CPU", "--json")
    (checked,) = said.document["checked"]
    found = {check["name"]: check for check in checked["checks"]}
    assert said.code == 0, said.out
    assert found["container"]["found"].endswith("settings attested")
    assert checked["found"]["torch"]["version"].startswith("2.")
    assert found["extensions"]["mark"] == "ok"
    absent = call("image", "check", "kernel-runner-test/absent")
    assert absent.code == 1
    assert "'kernel-runner-test/absent': the engine at" in absent.out


def test_the_questions_are_answered_on_any_machine() -> None:
    """A whole answer, whatever is missing; one architecture that no compiler knows."""
    program = str(Path(image_probe.__file__))
    done = subprocess.run(
        [sys.executable, program, json.dumps(["1", "gfx0"])],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    answer = json.loads(done.stdout)
    assert answer["torch"]["version"] == torch.__version__
    assert answer["modules"]["numpy"]["version"]
    assert answer["tools"]["c++"]["version"].count(".") >= 1
    assert set(answer["compiles"]) == {"1", "gfx0"}
    assert all(answer["compiles"].values()), "an error each"
