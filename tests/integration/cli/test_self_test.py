"""`gpu test` on the cores of this host, in a real container."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.host.engine import DockerEngine
from tests.integration.cli.conftest import Call


def test_the_cores_of_this_host_pass(
    call: Call, docker_engine: DockerEngine, evaluation_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox shows no device and only the slot's cores, copy and product are timed by the judge."""
    for name, value in (
        ("DOCKER_HOST", docker_engine.base_url),
        ("KERNEL_RUNNER_EVAL_PYTHON", str(evaluation_python)),
        ("KERNEL_RUNNER_STATE_DIR", str(tmp_path)),
        ("KERNEL_RUNNER_SLOTS", "auto"),
    ):
        monkeypatch.setenv(name, value)
    said = call("gpu", "test", "CPU", "--json")
    assert said.code == 0, said.err
    (slot,) = said.document["slots"]
    found = {check["name"]: check["found"] for check in slot["checks"]}
    assert found["sandbox sees"].startswith("no device and ")
    assert "settings attested" in found["sandbox sees"]
    assert [(one["name"], one["unit"], one["peak"]) for one in slot["measured"]] == [
        ("copy", "GB/s", None),
        ("matmul fp32", "TFLOP/s", None),
    ]
    assert all(one["rate"] > 0 and one["median_ns"] > 0 for one in slot["measured"])


def test_without_engine_or_device_a_sentence_says_so(
    call: Call, evaluation_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is not there is the infrastructure's fault, a type that is not here the caller's."""
    monkeypatch.setenv("KERNEL_RUNNER_EVAL_PYTHON", str(evaluation_python))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    away = call("gpu", "test", "CPU")
    assert (away.code, away.out) == (3, "")
    assert "no container engine answers" in away.err
    other = call("gpu", "test", "MI355X")
    assert other.code == 2
    assert "this host has no slot for GPU type MI355X" in other.err
