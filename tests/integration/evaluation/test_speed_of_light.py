"""The speed of light from registry and task to a run's result, on a CPU type whose peaks an overlay states."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.base.config import Config
from runner.base.gpu_types import Registry
from runner.base.model import Job, JobResult, Mode, Verdict
from runner.task_format import extra_to_stored
from sandbox.host.engine import DockerEngine
from tests.integration.evaluation.conftest import RIGHT, VECTORADD, evaluate, evaluator_with
from tests.unit import samples


def job(**extra: str) -> Job:
    """A benchmark of a right solution of vectoradd; `extra` replaces what its runner.yml says of its work."""
    stored = {**extra_to_stored(VECTORADD.extra), **extra}
    return samples.job_on(VECTORADD, RIGHT, mode=Mode.BENCHMARK, extra=stored)


@pytest.fixture
def lit(docker_engine: DockerEngine, settings: Config, tmp_path: Path) -> Iterator[Callable[[Job], JobResult]]:
    """Evaluates jobs on a CPU type that does 1e17 operations and moves 1e14 bytes per second, with next to no cache."""
    figures = "[device]\nl3_mib = 1e-3\nbandwidth_gb_s = 1e5\npeak_tflops = { fp32 = 1e5 }\n"
    (tmp_path / "CPU.toml").write_text(f'extends = "CPU"\nname = "CPU"\n{figures}')
    with evaluator_with(docker_engine, settings, registry=Registry.load(tmp_path), warm_containers=0) as made:
        yield lambda what: evaluate(made, what)


def test_the_speed_of_light_is_in_the_result_and_beyond_it_is_no_result(lit: Callable[[Job], JobResult]) -> None:
    """Honest times carry their fraction; work that none could do in the time is rejected, what cannot fit invalid."""
    result = lit(job())
    assert result.verdict is Verdict.ACCEPTED, result.error
    (timed,) = result.runs
    for index, case in enumerate(VECTORADD.cases_for("CPU").benchmarks or ()):
        fraction = float(timed.result[f"benchmark.{index}.sol"])
        sol_ns = 6 * int(str(case["size"])) ** 2 / 1e5
        assert fraction * float(timed.result[f"benchmark.{index}.mean"]) == pytest.approx(sol_ns, rel=1e-3)
        assert fraction < 1
        assert timed.result[f"benchmark.{index}.sol_limit"] == "memory"

    judged = lit(job(flops="1e21", math="fp32"))
    assert judged.verdict is Verdict.REJECTED
    assert re.fullmatch(
        r"benchmark 1 of 2: its mean time of \S+ \S+ is impossible: the case needs at least 6667 s for math "
        r"\(1e\+21 operations, and CPU does at most 1\.5e\+17 of any kind per second\)",
        judged.error or "",
    )
    assert "benchmark.0.mean" not in judged.runs[0].result

    too_large = lit(job(bytes="1e18"))
    assert too_large.verdict is Verdict.INVALID
    assert "more than the 4 GiB of CPU's container (give this GPU type smaller cases" in (too_large.error or "")
