"""The keys of a stored result, and of what the command line prints of it as JSON.

Plan, judge, worker, verdict and store are the real ones. Judge and worker are forked without a container, so
what the container attests (`system_info.runner.sandbox`) is empty here. There is no device either: its keys
(`devices[]`, `clocks`) are absent.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from runner.base.gpu_types import Registry
from runner.cli import main
from runner.evaluation.evaluate import Evaluator
from sandbox.host.engine import ContainerReport
from tasks.harness.judge.request import JudgeRequest
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.integration.evaluation.conftest import settings_of
from tests.integration.store.conftest import Bench
from tests.support.noise import again_if_noise
from tests.unit import samples
from tests.unit.interfaces.fixtures import ROOT, WRITE, compare, keys

#: Long enough that the judge's clock bounds each call on a busy machine, too.
RIGHT = b"import time\n\n\ndef custom_kernel(data):\n    time.sleep(0.002)\n    return data[0] + data[1]\n"
WRONG = b"def custom_kernel(data):\n    return data[0]\n"
#: Every optional key of a timed case: enough calls for a trend if half are set aside, and an interval that is never
#: narrow enough.
TIMING = "\ntiming: {min_runs: 24, max_runs: 24, width: 0.000001, noisy: 0.000001, refuse: 10}\n"
#: Every case has a speed of light, which nothing here comes near to.
GPU_TYPE = (
    'extends = "CPU"\nname = "CPU"\n[device]\nbandwidth_gb_s = 1e8\npeak_tflops = { fp16 = 1e8 }\nmemory_gib = 8\n'
)
ROWS = "SELECT mode, secret, meta, result, system_info, compilation FROM leaderboard.runs WHERE submission_id = %s"
#: What a stored result is printed as, too; and what a daemon tells of its slots.
STORED = (".result.", ".meta.", ".system_info.", ".slots[].")
COMMANDS = ("status 1", "status", "leaderboard list", "leaderboard show add", "host list", "gpu list")


class Engine(Mock):
    """A container engine whose containers are processes of this machine."""

    def __init__(self, processes: ForkedJudges) -> None:
        super().__init__()
        self.processes = processes
        self.check.return_value = Mock(version="1", cdi={})
        self.ensure_host_root.return_value = "sha256:0"
        self.start.return_value.is_open = False
        self.start.return_value.run.side_effect = self.judge

    def judge(self, request: Any, **_: object) -> ContainerReport:  # noqa: ANN401 - the daemon's request to the container
        """Run judge and worker."""
        report = self.processes.evaluate(JudgeRequest.from_payload(request.payload))
        return ContainerReport(
            steps=report.steps,
            artifacts=report.artifacts,
            ok=True,
            message=None,
            outcome=samples.outcome(wall_ns=10**12),
            attested={},
        )

    def _get_child_mock(self, **named: Any) -> Mock:  # noqa: ANN401 - as in Mock
        return Mock(**named)


@pytest.fixture
def command_line(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs `kernel-runner` on the database, in this process; its output."""
    gpus_dir = tmp_path / "gpus.d"
    gpus_dir.mkdir()
    (gpus_dir / "CPU.toml").write_text(GPU_TYPE, encoding="utf-8")
    for name in os.environ:
        if name.startswith("KERNEL_RUNNER_") and name != WRITE:
            monkeypatch.delenv(name)
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("KERNEL_RUNNER_GPUS_DIR", str(gpus_dir))

    def run(*words: str) -> str:
        capsys.readouterr()
        code = main(words)
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return run


@pytest.fixture
def evaluator(tmp_path: Path, command_line: object, processes: ForkedJudges) -> Iterator[Evaluator]:
    """A host's evaluator, with the GPU type of the command line."""
    assert command_line
    settings = settings_of(tmp_path, Path(sys.executable)).model_copy(update={"warm_containers": 0})
    made = Evaluator(Engine(processes), Registry.load(tmp_path / "gpus.d"), settings)
    yield made
    made.close()


def test_results(
    bench: Bench,
    db: psycopg.Connection[dict[str, Any]],
    command_line: Callable[..., str],
    evaluator: Evaluator,
    tmp_path: Path,
) -> None:
    """Per mode: `result`, `meta` and `system_info` as KernelBot's programs and ours read them; JSON of commands."""
    shutil.copytree(ROOT / "tasks" / "problems" / "vectoradd", tmp_path / "tasks" / "add")
    for name in ("eval.py", "utils.py"):
        shutil.copy(ROOT / "tasks" / "problems" / name, tmp_path / "tasks" / name)
    with (tmp_path / "tasks" / "add" / "runner.yml").open("a", encoding="utf-8") as extra:
        extra.write(TIMING)
    command_line("leaderboard", "create", str(tmp_path / "tasks" / "add"), "--name", "add", "--gpu", "CPU")
    bench.register("host-a", "CPU")
    modes: defaultdict[str, set[str]] = defaultdict(set)
    for mode, code in (("leaderboard", RIGHT), ("profile", RIGHT), ("test", WRONG)):
        submission_id = bench.submit(leaderboard="add", mode=mode, code=code)
        while claims := bench.store.claim(host="host-a", slots={"CPU": 1}, lease_s=600).jobs:
            run = partial(evaluator.run, claims[0], samples.SLOT, cancel=threading.Event())
            result = again_if_noise(run)
            assert result.verdict == ("accepted" if code is RIGHT else "wrong_answer"), result.error
            bench.store.complete(claims[0], result)
        for row in db.execute(ROWS.encode(), (submission_id,)).fetchall():
            kind = f"{'secret ' * row.pop('secret')}{row.pop('mode')}{' failed' * (code is WRONG)}"
            for key in keys(row):
                modes[key].add(kind)
    compare("stored_results", (f"{key}  [{', '.join(sorted(modes[key]))}]" for key in modes))
    shown = {words: keys(json.loads(command_line(*words.split(), "--json"))) for words in COMMANDS}
    lines = (f"{words}: {key}" for words, found in shown.items() for key in found)
    compare("json_output", (line for line in lines if not any(part in line for part in STORED)))
    statuses = db.execute(b"SELECT jobs FROM runner.status").fetchall()
    compare("status_jobs", (key for row in statuses for key in keys(row)))
