"""What judge and worker import in the process that both are forks of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
_LOOK = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
before = sorted(os.sched_getaffinity(0))
beside = []


class Look:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch._C":
            beside.extend(sorted(os.sched_getaffinity(0)))


sys.meta_path.insert(0, Look)
drawn, urandom = [], os.urandom
os.urandom = lambda count: drawn.append(sys._getframe(1).f_globals["__name__"]) or urandom(count)
import tasks.harness.preload
os.urandom = urandom
preloaded = sorted(name for name in sys.modules if name.startswith(("tasks.", "numpy.random")))
import numpy
import torch
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        # What works with threads of libraries, which a fork does not copy.
        torch.ones(600, 600) @ torch.ones(600, 600)
        numpy.ones((600, 600)) @ numpy.ones((600, 600))
        os._exit(0)
    children.append(child)
print(json.dumps({
    "cores": [before, sorted(os.sched_getaffinity(0))],
    "while torch is imported": beside,
    "drawn": drawn,
    "preloaded": preloaded,
    "threads": torch.get_num_threads(),
    "ends": [os.waitpid(child, 0)[1] for child in children],
    "spin": os.environ.get("GOMP_SPINCOUNT"),
    "cuda": torch.cuda.is_initialized(),
}))
"""


@cache
def _look(**env: str) -> dict[str, object]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-I", "-c", _LOOK, str(ROOT)],
        env=bare | env,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_it_leaves_a_process_that_can_be_forked() -> None:
    """Its forks compute; no device, all its cores; torch will start threads for all but the judge's at most."""
    found = _look()
    before, after = found["cores"]  # type: ignore[misc]
    assert before == after  # type: ignore[has-type]
    assert 1 <= found["threads"] <= max(1, len(before) - 1)  # type: ignore[operator, has-type]
    assert found["ends"] == [0, 0]
    # Containers that start at once share the cores.
    assert found["while torch is imported"] == before  # type: ignore[has-type]
    assert found["cuda"] is False


@pytest.mark.parametrize(("env", "spin"), [({}, "10000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)])
def test_idle_threads_soon_sleep_unless_the_gpu_type_says_otherwise(env: dict[str, str], spin: str | None) -> None:
    """What an operator sets in the GPU type's environment is left alone."""
    assert _look(**env)["spin"] == spin


def test_a_second_judge_of_a_container_imports_nothing_and_shares_no_random_numbers() -> None:
    """Judge and worker are forks of one process: what it drew, a submission would know of its judge."""
    imports = _look()
    assert "tasks.harness.judge.main" in imports["preloaded"]  # type: ignore[operator]
    assert not {"numpy.random", "tasks.harness.worker.main"} & set(imports["preloaded"])  # type: ignore[call-overload]
    assert [name for name in imports["drawn"] if name.startswith("tasks.")] == []  # type: ignore[attr-defined]
