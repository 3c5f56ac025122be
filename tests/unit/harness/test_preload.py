"""What judge and worker import in the process that both are forks of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_LOOK = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
before = sorted(os.sched_getaffinity(0))
import tasks.harness.preload
import torch
print(json.dumps({
    "cores": [before, sorted(os.sched_getaffinity(0))],
    "threads": [torch.get_num_threads(), len(os.listdir("/proc/self/task"))],
    "spin": os.environ.get("GOMP_SPINCOUNT"),
    "cuda": torch.cuda.is_initialized(),
}))
"""


def _look(**env: str) -> dict[str, object]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-I", "-c", _LOOK, str(ROOT)], env=bare | env, capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_it_leaves_a_process_that_can_be_forked() -> None:
    """One thread, no device, all its cores; torch counts one core fewer, which is the judge's."""
    found = _look()
    before, after = found["cores"]  # type: ignore[misc]
    assert before == after  # type: ignore[has-type]
    assert found["threads"] == [max(1, len(before) - 1), 1]  # type: ignore[has-type]
    assert found["cuda"] is False


@pytest.mark.parametrize(
    ("env", "spin"), [({}, "10000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None), ({"GOMP_SPINCOUNT": "7"}, "7")]
)
def test_idle_threads_soon_sleep_unless_the_gpu_type_says_otherwise(env: dict[str, str], spin: str | None) -> None:
    """What an operator sets in the GPU type's environment is left alone."""
    assert _look(**env)["spin"] == spin
