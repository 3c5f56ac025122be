"""The speed of light from registry and task to a run's result, on a CPU type whose peaks an overlay states."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from runner.base.gpu_types import Registry
from runner.base.model import Job, JobResult, Mode, Verdict
from runner.evaluation.evaluate import EvaluationSettings, Evaluator
from runner.task_format import extra_to_stored, load_folder, to_stored
from sandbox.host.engine import DockerEngine
from tests.plugins.live import ROOT
from tests.unit import samples

VECTORADD = ROOT / "tasks" / "problems" / "vectoradd"


def job(**extra: str) -> Job:
    """A benchmark of a right solution of vectoradd; `extra` replaces what its runner.yml says of its work."""
    task = load_folder(VECTORADD).task
    code = (VECTORADD / "solutions" / "correct" / "torch_add.py").read_bytes()
    stored = {**extra_to_stored(task.extra), **extra}
    return replace(samples.job(mode=Mode.BENCHMARK, code=code), task=to_stored(task), extra=stored)


@pytest.fixture
def lit(docker_engine: DockerEngine, settings: EvaluationSettings) -> Iterator[Callable[[Job], JobResult]]:
    """Evaluates jobs on a CPU type that does 1e17 operations and moves 1e14 bytes per second, with next to no cache."""
    overlay = settings.state_dir / "gpus.d"
    overlay.mkdir()
    figures = "[device]\nl3_mib = 1e-3\nbandwidth_gb_s = 1e5\npeak_tflops = { fp32 = 1e5 }\n"
    (overlay / "CPU.toml").write_text(f'extends = "CPU"\nname = "CPU"\n{figures}')
    made = Evaluator(docker_engine, Registry.load(overlay), replace(settings, warm_containers=0))
    made.prepare([samples.SLOT])
    yield lambda what: made.run(what, samples.SLOT, cancel=threading.Event())
    made.close()


def test_the_speed_of_light_is_in_the_result_and_beyond_it_is_no_result(lit: Callable[[Job], JobResult]) -> None:
    """Honest times carry their fraction; work that none could do in the time is rejected, what cannot fit invalid."""
    result = lit(job())
    assert result.verdict is Verdict.ACCEPTED, result.error
    (timed,) = result.runs
    for index, case in enumerate(load_folder(VECTORADD).task.cases_for("CPU").benchmarks or ()):
        fraction = float(timed.result[f"benchmark.{index}.sol"])
        sol_ns = 6 * int(str(case["size"])) ** 2 / 1e5
        assert fraction * float(timed.result[f"benchmark.{index}.mean"]) == pytest.approx(sol_ns, rel=1e-3)
        assert fraction < 1
        assert timed.result[f"benchmark.{index}.sol_limit"] == "memory"

    judged = lit(job(flops="1e21", math="fp32"))
    assert judged.verdict is Verdict.REJECTED
    assert re.fullmatch(
        r"benchmark 1 of 2: its mean time of \S+ µs is impossible: the case needs at least 6\.667e\+09 µs for math "
        r"\(1e\+21 operations, and CPU does at most 1\.5e\+17 of any kind per second\)",
        judged.error or "",
    )
    assert "benchmark.0.mean" not in judged.runs[0].result

    too_large = lit(job(bytes="1e18"))
    assert too_large.verdict is Verdict.INVALID
    assert "more than the 4 GiB of CPU's container (give this GPU type smaller cases" in (too_large.error or "")
