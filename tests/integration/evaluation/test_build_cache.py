"""Submissions that compile do it once, before their runs or in the public one, and no other gets what was compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from runner.base.config import Config
from runner.base.errors import EvaluationError
from runner.base.model import Job, JobResult, Mode, Slot, Verdict
from runner.evaluation import build_cache
from runner.evaluation.evaluate import Evaluator
from runner.evaluation.leftovers import keep_out
from runner.task_format import load_folder
from runner.task_format.model import Harness, Task
from sandbox.errors import EngineRefused
from sandbox.host.engine import DockerEngine
from tests.integration.evaluation.conftest import VECTORADD, evaluator_with
from tests.integration.evaluation.conftest import evaluate as evaluate_on
from tests.plugins.live import ROOT, with_few_calls
from tests.unit import samples

SMALL = replace(VECTORADD, tests=VECTORADD.tests[:1], benchmarks=VECTORADD.benchmarks[:1])
CUDA_FOLDER = ROOT / "tests" / "fixtures" / "kernelbot_task_cu"
CUDA = load_folder(CUDA_FOLDER).task
#: One core, so that others are left for builds.
CORE = min(os.sched_getaffinity(0))
SLOT = replace(samples.SLOT, cpus=(CORE,))

#: A task of its own program that shows what it finds in torch's cache, without the two seconds of importing torch.
SHOWS = """
import os, sys
from pathlib import Path
notes = sorted(path.read_text() for path in Path(os.environ["TORCH_EXTENSIONS_DIR"]).rglob("note"))
lines = [f"test-count: 1\\ntest.0.status: pass\\ntest.0.message: {' '.join(notes)}"]
if sys.argv[1] != "test":
    lines = ["benchmark-count: 2", *(f"benchmark.{index}.mean: 1000" for index in range(2))]
with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as out:
    out.write("\\n".join([*lines, "check: pass"]))
"""
#: Leaves a note in the cache as a compiler would: who made it, unless it is there.
NOTES = f"""
import os  # load_inline
from pathlib import Path
cache = Path(os.environ["TORCH_EXTENSIONS_DIR"], "mine")
AHEAD = os.sched_getaffinity(0) != {{{CORE}}}
if not (cache / "note").exists():
    cache.mkdir(parents=True)
    (cache / "note").write_text(("ahead-" if AHEAD else "run-") + os.urandom(8).hex())
"""
#: The same, in a run alone.
LEAVES = NOTES.replace("load_inline", "")
#: Keeps the first answer of a run, and gives it again in a run that finds it.
REPLAYS = """
import os
from pathlib import Path
import torch

kept = Path(os.environ["TRITON_CACHE_DIR"], "answer")
state = {"calls": 0}

def custom_kernel(data):
    a, b, *_ = data
    state["calls"] += 1
    if state["calls"] == 1 and kept.exists():
        return torch.load(kept)
    answer = a + b
    if state["calls"] == 1:
        kept.parent.mkdir(parents=True)
        torch.save(answer, kept)
    return answer
"""
#: Finds half a library in the caches of its public run, as after a disk that was full for a moment.
HALF_A_LIBRARY = """
import ctypes, os
from pathlib import Path

library = Path(os.environ["TORCH_EXTENSIONS_DIR"], "library.so")
if library.exists():
    ctypes.CDLL(str(library))
library.parent.mkdir(parents=True)
library.write_bytes(b"half")

def custom_kernel(data):
    a, b, *_ = data
    return a + b
"""
#: Says how often torch.compile had to compile so far.
TRACED = """
import torch
from torch._dynamo.utils import counters

@torch.compile(dynamic=False)
def add(a, b):
    return a + b

def custom_kernel(data):
    a, b, *_ = data
    answer = add(a, b)
    print(counters["inductor"]["fxgraph_cache_miss"] + counters["aot_autograd"]["autograd_cache_miss"])
    return answer
"""
#: Which vector instructions torch.compile uses.
INSTRUCTIONS = "from torch._inductor import cpu_vec_isa; print(*map(str, cpu_vec_isa.valid_vec_isa_list()), sep=', ')"
#: Compiled by torch's extension builder, in a second because no header of torch's is read.
INLINE = """
import ctypes
from torch.utils.cpp_extension import load_inline

library = ctypes.CDLL(load_inline(
    name="factor", cpp_sources=['extern "C" int factor() { return 1; }'], is_python_module=False,
    no_implicit_headers=True, verbose=True, use_pch=True,
))

def custom_kernel(data):
    a, b, *_ = data
    return (a + b) * library.factor()
"""

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="a build worker needs a core beside the slot's, this machine has one"
)


def job(code: str, task: Task | None = None, *, submission: int = 3, secret: bool | None = None) -> Job:
    """A test job, or one of a public and a secret one."""
    if task is None:
        task = samples.task(harness=Harness.PROGRAM, tests=1)
        task = replace(task, files={**task.files, "eval.py": SHOWS})
    mode = Mode.TEST if secret is None else Mode.LEADERBOARD
    ids = {"id": 2 * submission + bool(secret), "submission_id": submission}
    return samples.job_on(task, code, mode=mode, secret=bool(secret), **ids)


@pytest.fixture
def made(docker_engine: DockerEngine, settings: Config) -> Iterator[Evaluator]:
    """An evaluator with a build worker; nothing is warm."""
    with evaluator_with(docker_engine, settings, build_workers="auto", warm_containers=0) as evaluator:
        evaluator._build_cache.arrange([SLOT])
        yield evaluator


class Stuck:
    """A container that cannot be removed."""

    id = "0123456789abcdef"

    def close(self) -> None:
        """Not now."""
        raise EngineRefused("it will not go")


def evaluate(evaluator: Evaluator, given: Job, slot: Slot = SLOT) -> JobResult:
    """Its result, on the slot of one core."""
    return evaluate_on(evaluator, given, slot)


def note(result: JobResult) -> str:
    """What the task's program found in the cache."""
    assert result.verdict is Verdict.ACCEPTED, result.error
    return result.runs[0].result["test.0.message"]


def built(logs: list[Any]) -> list[dict[str, Any]]:
    """The builds that were made."""
    return [entry for entry in logs if entry["event"] == "build_finished"]


def test_torch_builds_once_for_both_jobs(made: Evaluator) -> None:
    """Ninja finds nothing to do in either run: the cache is at the same place, with the same times."""
    with capture_logs() as logs:
        results = [evaluate(made, job(INLINE, VECTORADD, secret=secret)) for secret in (False, True)]
    assert [result.verdict for result in results] == [Verdict.ACCEPTED, Verdict.ACCEPTED]
    assert ["ninja: no work to do." in result.runs[0].meta["stdout"] for result in results] == [True, True]
    (build,) = built(logs)
    assert CORE not in build["cpus"]
    assert build["bundle_bytes"] > 0


def test_public_and_secret_job_share_a_build_and_no_other_does(made: Evaluator) -> None:
    """The same code of another submission is built again, and so is a secret job that comes after both were done."""
    public, secret = (note(evaluate(made, job(NOTES, secret=secret))) for secret in (False, True))
    other = note(evaluate(made, job(NOTES, submission=4, secret=False)))
    again = note(evaluate(made, job(NOTES, secret=False)))
    assert public.startswith("ahead-")
    assert public == secret
    assert len({public, other, again}) == 3


@pytest.mark.parametrize(
    ("programs", "secret"),
    [((SHOWS, f"{SHOWS}# mended"), True), ((SHOWS.replace("check: pass", "check: fail"),) * 2, False)],
    ids=["after an update of the task", "after a failure"],
)
def test_a_run_of_another_task_or_after_a_failure_builds_again(
    made: Evaluator, programs: tuple[str, str], *, secret: bool
) -> None:
    """The secret run of a leaderboard that was updated meanwhile; a failed submission that is evaluated again."""
    small = samples.task(harness=Harness.PROGRAM, tests=1)
    tasks = [replace(small, files={**small.files, "eval.py": program}) for program in programs]
    with capture_logs() as logs:
        for task, second in zip(tasks, (False, secret), strict=True):
            evaluate(made, job(NOTES, task, secret=second))
    assert len(built(logs)) == 2


def test_both_jobs_at_the_same_time_wait_for_one_build(made: Evaluator) -> None:
    """Two slots, two threads, one build."""
    slots = (SLOT, replace(SLOT, name="cpu1"))
    results: dict[str, JobResult] = {}

    def run(slot: Slot, *, secret: bool) -> None:
        results[slot.name] = evaluate(made, job(NOTES, secret=secret), slot)

    with capture_logs() as logs:
        threads = [
            threading.Thread(target=run, args=(slot,), kwargs={"secret": index == 1})
            for index, slot in enumerate(slots)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({note(result) for result in results.values()}) == 1
    assert len(built(logs)) == 1
    waited, builder = sorted(results.values(), key=lambda result: result.build_ns)
    assert waited.report["phases_ns"]["build"] == 0 < builder.report["phases_ns"]["build"]
    assert waited.report["phases_ns"]["wait"] > 0
    for result in (waited, builder):
        # Waiting counts neither as building nor as evaluating.
        phases, wall_ns = result.report["phases_ns"], result.report["outcome"]["wall_ns"]
        assert result.build_ns + result.eval_ns == phases["build"] + phases["container"] + wall_ns


def test_a_build_that_takes_too_long_is_no_verdict(made: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, what it left is not used, and the run begins anew."""
    monkeypatch.setattr(made, "_config", made._config.model_copy(update={"build_timeout_s": 2}))
    result = evaluate(made, job(f"import time\n{NOTES}\nwhile AHEAD:\n    time.sleep(60)\n"))
    assert note(result).startswith("run-")


def test_a_builder_that_is_killed_midway_is_no_verdict(docker_engine: DockerEngine, made: Evaluator) -> None:
    """The job runs as if nothing had been built, at once."""
    label = {"label": ["kernel-runner.build=3", f"kernel-runner.owner={docker_engine.owner}"]}
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.05):
            for found in docker_engine._call("list", lambda api: api.containers(quiet=True, filters=label)):
                docker_engine._kill(str(found["Id"]))

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        result = evaluate(made, job(f"import time\n{NOTES}\nwhile AHEAD:\n    time.sleep(60)\n"))
    finally:
        over.set()
        killer.join()
    assert note(result).startswith("run-")


@pytest.mark.parametrize(
    ("leave", "reason"),
    [
        ("os.symlink('/judge', cache / 'away')", "is a link to '/judge'"),
        ("os.chmod(cache / 'note', 0o4755)", "set-uid"),
        ("os.truncate(os.open(cache / 'big', os.O_RDWR | os.O_CREAT), 1 << 30)", "more than"),
    ],
    ids=["link", "set-uid", "sparse"],
)
def test_a_hostile_archive_is_refused_and_costs_its_owner_time_only(made: Evaluator, leave: str, reason: str) -> None:
    """Nothing of it gets anywhere, and the job runs as if nothing had been built."""
    with capture_logs() as logs:
        result = evaluate(made, job(f"{NOTES}\nif AHEAD:\n    {leave}\n"))
    assert note(result).startswith("run-")
    assert reason in built(logs)[0]["refused"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="lang cu needs nvcc on the host, this one has none")
def test_nvcc_runs_once_for_both_jobs_and_its_facts_stand_with_both(made: Evaluator) -> None:
    """The program goes where it runs, the sources do not."""
    code = (CUDA_FOLDER / "solutions" / "correct" / "running_sums.cuh").read_text(encoding="utf-8")
    with capture_logs() as logs:
        results = [evaluate(made, job(code, CUDA, secret=secret)) for secret in (False, True)]
    for result in results:
        assert result.verdict is Verdict.ACCEPTED, result.error
        assert [run.compilation is not None and run.compilation["success"] for run in result.runs] == [True] * 3
        assert [step["name"] for step in result.report["steps"]] == ["test", "benchmark", "leaderboard"]
    assert len(built(logs)) == 1


def test_a_job_does_not_run_beside_a_container_that_would_not_go(made: Evaluator) -> None:
    """The run before it left one behind: that is no verdict, and the job is tried elsewhere."""
    keep_out(SLOT.name, Stuck(), EngineRefused("it will not go"), made._resources.quarantine)
    with pytest.raises(EvaluationError, match=r"slot cpu0 cannot be used: .*it will not go"):
        evaluate(made, job("pass"))


def test_without_a_spare_core_a_job_is_built_on_its_slots_cores(
    made: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its run, and still once for both jobs; with no build workers configured, in the run."""
    everything = replace(SLOT, cpus=tuple(sorted(os.sched_getaffinity(0))))
    made._build_cache.arrange([everything])
    with capture_logs() as logs:
        notes = {note(evaluate(made, job(NOTES, secret=secret), everything)) for secret in (False, True)}
        monkeypatch.setattr(made._build_cache, "_workers", 0)
        evaluate(made, job(NOTES, submission=5), everything)
    assert len(notes) == 1
    (build,) = built(logs)
    assert build["cpus"] == everything.cpus


def test_what_compilers_leave_in_the_public_run_goes_to_its_secret_run_alone(made: Evaluator) -> None:
    """Not to another public run, to another submission, or to a second secret run; kept from the last one's end on."""
    kept, until_s = [], []
    for _ in range(2):
        kept.append(note(evaluate(made, job(LEAVES, secret=False))))
        until_s += [entry.until_s for entry in made._build_cache._entries.values()]
    assert until_s[0] < until_s[1]
    first, last = kept
    other = note(evaluate(made, job(LEAVES, submission=4, secret=True)))
    secret, again = (note(evaluate(made, job(LEAVES, secret=True))) for _ in range(2))
    assert secret == last
    assert len({first, last, other, again}) == 4
    assert not made._build_cache._entries


def test_torch_compile_compiles_in_the_public_run_alone(made: Evaluator) -> None:
    """The secret run finds everything in its caches."""
    small = replace(VECTORADD, tests=VECTORADD.tests[:2], benchmarks=VECTORADD.benchmarks[:1])
    small = with_few_calls(small, 3)
    compiled = []
    for secret in (False, True):
        result = evaluate(made, job(TRACED, small, secret=secret))
        assert result.verdict is Verdict.ACCEPTED, result.error
        compiled.append({int(line) for run in result.runs for line in run.meta["stdout"].split()})
    assert max(compiled[0]) > 0
    assert compiled[1] == {0}


def test_torchs_own_look_at_the_compiler_comes_to_what_containers_say(eval_python: Path, tmp_path: Path) -> None:
    """With and without TORCHINDUCTOR_VEC_ISA_OK the same vector instructions are used."""
    found = [
        subprocess.run(
            [eval_python, "-c", INSTRUCTIONS],
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / value), "TORCHINDUCTOR_VEC_ISA_OK": value},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for value in ("1", "unknown")
    ]
    assert found[0] == found[1]
    assert found[0].strip()


def test_a_public_run_that_fails_leaves_nothing(made: Evaluator) -> None:
    """Its secret run, if it is ordered, compiles."""
    task = samples.task(harness=Harness.PROGRAM, tests=1)
    failing = replace(task, files={**task.files, "eval.py": SHOWS.replace("check: pass", "check: fail")})
    assert evaluate(made, job(LEAVES, failing, secret=False)).verdict is Verdict.WRONG_ANSWER
    assert not any(entry.caches for entry in made._build_cache._entries.values())


@pytest.mark.parametrize("same_data", [False, True])
def test_answers_kept_in_a_cache_are_of_no_use(
    made: Evaluator, monkeypatch: pytest.MonkeyPatch, *, same_data: bool
) -> None:
    """The secret run has other data; a run with the same would take the public run's answer."""
    if same_data:
        monkeypatch.setattr("runner.evaluation.context.seed_of", lambda _, task: task.seed)
    public, secret = (evaluate(made, job(REPLAYS, SMALL, secret=secret)) for secret in (False, True))
    assert public.verdict is Verdict.ACCEPTED, public.error
    assert secret.verdict is (Verdict.ACCEPTED if same_data else Verdict.WRONG_ANSWER), secret.error


@pytest.mark.parametrize(
    ("spoil", "event"),
    [("hostile", "caches_not_kept"), ("disk", "caches_not_kept"), ("broken", "build_archive_not_usable")],
)
def test_caches_that_cannot_travel_cost_time_only(made: Evaluator, spoil: str, event: str) -> None:
    """A pipe in a cache, a full disk, an archive that cannot be unpacked: both runs are accepted, each compiles."""
    code = LEAVES + ("os.mkfifo(cache / f'pipe-{os.urandom(8).hex()}')\n" if spoil == "hostile" else "")
    cache = made._build_cache
    with capture_logs() as logs:
        if spoil == "disk":
            cache._directory /= "away"
        public = note(evaluate(made, job(code, secret=False)))
        if spoil == "broken":
            (entry,) = cache._entries.values()
            assert entry.caches is not None
            os.pwrite(entry.caches._fd, b"no gzip", 0)
        secret = note(evaluate(made, job(code, secret=True)))
    assert public != secret
    assert event in [entry["event"] for entry in logs]


def test_a_secret_run_that_fails_with_caches_runs_again_without(made: Evaluator) -> None:
    """The verdict of the second run counts; a run that has no caches is not repeated."""
    with capture_logs() as logs:
        results = [evaluate(made, job(HALF_A_LIBRARY, SMALL, secret=secret)) for secret in (False, True)]
        fails = evaluate(made, job("raise ImportError", SMALL, submission=4, secret=True))
    assert [result.verdict for result in results] == [Verdict.ACCEPTED, Verdict.ACCEPTED], results[1].error
    assert fails.verdict is Verdict.RUNTIME_ERROR
    (failed,) = [entry for entry in logs if entry["event"] == "caches_not_usable"]
    assert "library.so" in failed["error"]


def test_a_public_run_that_keeps_no_caches_drops_those_of_an_earlier_one(made: Evaluator) -> None:
    """Its secret run compiles."""
    first = note(evaluate(made, job(LEAVES, secret=False)))
    directory, made._build_cache._directory = made._build_cache._directory, Path(os.devnull, "none")
    again = note(evaluate(made, job(LEAVES, secret=False)))
    made._build_cache._directory = directory
    secret = note(evaluate(made, job(LEAVES, secret=True)))
    assert len({first, again, secret}) == 3


def test_archives_are_kept_within_bounds(made: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first, by number and by size, and what is too old is not used; its secret job builds anew."""
    monkeypatch.setattr(build_cache, "KEPT", 1)
    first = note(evaluate(made, job(NOTES, submission=1, secret=False)))
    evaluate(made, job(NOTES, submission=2, secret=False))
    assert [key[0] for key in made._build_cache._entries] == [2]
    assert note(evaluate(made, job(NOTES, submission=1, secret=True))) != first
    monkeypatch.setattr(build_cache, "KEPT", 9)
    monkeypatch.setattr(build_cache, "KEPT_BYTES", 1)
    third = note(evaluate(made, job(NOTES, submission=3, secret=False)))
    assert [key[0] for key in made._build_cache._entries] == [3]
    made._build_cache._entries[next(iter(made._build_cache._entries))].until_s = 0.0
    assert note(evaluate(made, job(NOTES, submission=3, secret=True))) != third
