"""What a stopped, killed and restarted daemon does to the run it has: nothing is lost, nothing is done twice."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.base.model import JobState, Verdict
from tests.plugins.live import ROOT, LiveRunner, live_runner
from tests.support.waiting import PATIENCE_S

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
#: Right, and slow enough to be caught in the act: three tests of a second each.
SLOW = b"""import time


def custom_kernel(data):
    a, b = data
    time.sleep(1)
    return a + b
"""


@pytest.fixture
def live(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[LiveRunner]:
    """A daemon of one slot. No lease of it ends: its successor has its name, and so takes its jobs without waiting."""
    with live_runner(create_database(migrated_template), lease_s=PATIENCE_S, cpu_slots=1, warm_containers=1) as runner:
        runner.board(ROOT / "tasks" / "problems" / "vectoradd", name="vectoradd", timeout_s=300)
        yield runner


def running(live: LiveRunner) -> int:
    """Submit the slow submission and wait until its tests run; its id."""
    number = live.submit("vectoradd", SLOW)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        (job,) = live.store.submission(number).jobs
        if job.state is JobState.RUNNING and job.progress is not None and job.progress["phase"] == "test":
            return number
        time.sleep(0.02)
    raise AssertionError(f"submission {number} does not run: {live.log}")


def test_a_killed_daemon_loses_no_job_and_doubles_none(live: LiveRunner) -> None:
    """SIGKILL mid-run: its successor removes the container it left, and the job is run again, once, at no cost."""
    number = running(live)
    live.stop(signal.SIGKILL)
    assert live.containers() >= 1
    live.start()
    view = live.wait(number)
    (job,) = view.jobs
    assert (view.status.verdict, job.attempt, job.failures) == (Verdict.ACCEPTED, 2, 0)
    assert [run.mode for run in job.runs] == ["test"]
    assert live.stop(signal.SIGTERM) == 0
    assert live.containers() == 0


def test_a_profile_is_read_in_a_terminal_and_its_trace_is_kept(live: LiveRunner, tmp_path: Path) -> None:
    """Through daemon and container: a table per benchmark, unranked, in `status`; the trace by `artifact`."""
    right = (ROOT / "tasks" / "problems" / "vectoradd" / "solutions" / "correct" / "torch_add.py").read_bytes()
    number = live.submit("vectoradd", right, mode="profile")
    (job,) = live.wait(number).jobs
    assert job.verdict is Verdict.ACCEPTED, job.error
    assert all(run.score_s is None for run in job.runs)
    assert [line.name for line in job.artifacts] == [f"{run.mode}.trace.json.gz" for run in job.runs]

    def kernel_runner(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "runner.cli", "--config", str(live.config_file), *arguments]
        # The configuration's user is a daemon, which reads no submission.
        environment = ENVIRONMENT | {"DATABASE_URL": live.database_url}
        return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)

    shown = kernel_runner("status", str(number))
    assert shown.returncode == 0, shown.stderr
    assert "aten::add" in shown.stdout
    first = job.artifacts[0]
    assert f"kernel-runner artifact {first.id}" in shown.stdout
    saved = kernel_runner("artifact", str(first.id))
    assert saved.returncode == 0, saved.stderr
    trace = json.loads(gzip.decompress((tmp_path / first.name).read_bytes()))
    assert any(event.get("name") == "aten::add" for event in trace["traceEvents"])
    again = kernel_runner("artifact", str(first.id))
    assert again.returncode == 2
    assert "exists already" in again.stderr
