"""A plain evaluator of modules, as the public ones are: reference and candidate in one process and one namespace.

One seed for the weights, one for the inputs, the same objects for both sides, allclose at 1e-2, one clock, its report
on stdout. It is what the corpus of cheats is shown to win against.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tests.support.waiting import PATIENCE_S

_PREFIX = "RESULT "
_SEED, _TRIALS, _CALLS, _TOLERANCE = 42, 5, 20, 1e-2


def time_model(module: Any, inputs: list[Any]) -> float:  # noqa: ANN401 any module
    """The median time of a call, with the same inputs each time."""
    for _ in range(3):
        module(*inputs)
    times = []
    for _ in range(_CALLS):
        start = time.perf_counter()
        module(*inputs)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def check(expected: Any, found: Any) -> bool:  # noqa: ANN401 any output
    """Whether two outputs are close."""
    if expected.shape != found.shape:
        return False
    return bool(torch.allclose(expected, found, atol=_TOLERANCE, rtol=_TOLERANCE))


def evaluate(reference: str, candidate: str) -> None:
    """Evaluate a candidate; print the result."""
    namespace: dict[str, Any] = {"__name__": "problem"}
    exec(reference, namespace)  # noqa: S102 as the evaluators that this stands for do
    exec(candidate, namespace)  # noqa: S102 as above
    init = namespace["get_init_inputs"]()
    torch.manual_seed(_SEED)
    model = namespace["Model"](*init)
    torch.manual_seed(_SEED)
    model_new = namespace["ModelNew"](*init)
    correct = True
    with torch.no_grad():
        torch.manual_seed(_SEED)
        seeds = [int(torch.randint(0, 2**31, (1,))) for _ in range(_TRIALS)]
        for seed in seeds:
            torch.manual_seed(seed)
            inputs = namespace["get_inputs"]()
            expected = model(*inputs)
            found = model_new(*inputs)
            good = check(expected, found)
            correct = correct and good
        torch.manual_seed(_SEED)
        inputs = namespace["get_inputs"]()
        new_s = time_model(model_new, inputs)
        reference_s = time_model(model, inputs)
    result = {"correct": correct, "speedup": reference_s / max(new_s, 1e-9)}
    print(_PREFIX + json.dumps(result), flush=True)  # noqa: T201 its report


def _run(reference: str, candidate: str, path: str) -> None:
    """In a process of its own: evaluate with stdout in a file."""
    os.dup2(os.open(path, os.O_WRONLY), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.stdout = os.fdopen(1, "w")
    torch.set_num_threads(1)
    evaluate(reference, candidate)
    os._exit(0)


def judged(reference: str, candidate: str) -> dict[str, Any]:
    """What the evaluator's report says; {"correct": False} where there is none."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.acceptance.modules.plain"])
    with tempfile.TemporaryDirectory(prefix="kernel-runner-plain-") as directory:
        path = Path(directory) / "out"
        path.touch()
        process = context.Process(target=_run, args=(reference, candidate, str(path)))
        process.start()
        process.join(PATIENCE_S)
        if process.is_alive():
            process.kill()
            process.join()
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.startswith(_PREFIX)]
    found: dict[str, Any] = {"correct": False}
    with contextlib.suppress(ValueError, IndexError):
        found = json.loads(lines[-1].removeprefix(_PREFIX))
    return found
