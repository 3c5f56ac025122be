"""A GPU type that nobody knew: from a file to a ranked run, through the command line and the daemon, no code touched.

The device is one that NVML alone knows of: its module is replaced on the search path of the daemon and of the commands
that look at devices, and nothing in them knows. All other commands are called in this process. The task's own eval
program needs no device; in the container torch finds an emulated one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.base.model import Verdict
from runner.cli import main
from tests.fakes.machine import Machine
from tests.fakes.recordings import nvidia
from tests.plugins.live import ROOT, live_runner, with_timed_calls
from tests.support.waiting import wait_until

TASK = ROOT / "tests" / "fixtures" / "kernelbot_task"
DEVICE = nvidia("NVIDIA Hypothetical 9000", 0x9999, 31, (12, 0))


def test_a_new_gpu_type_goes_from_file_to_ranked_run(
    create_database: Callable[[str | None], str],
    migrated_template: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`gpu detect` knows no type, and writes one, the daemon ranks on it and sees when its device gets worse."""
    machine = Machine(tmp_path / "driver", DEVICE)
    task = shutil.copytree(TASK, tmp_path / "task")
    program = task / "eval.py"
    program.write_text(with_timed_calls(program.read_text(encoding="utf-8"), 10), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(machine.folder), str(ROOT))))
    with live_runner(create_database(migrated_template), cpu_slots=1, build_timeout_s=60, warm_containers=0) as runner:
        # The configuration's user is a daemon, which may not make boards.
        monkeypatch.setenv("DATABASE_URL", runner.database_url)

        def started(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "runner.cli", "--config", str(runner.config_file), *arguments],
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
            )

        def kernel_runner(*arguments: str) -> subprocess.CompletedProcess[str]:
            capsys.readouterr()
            code = main(["--config", str(runner.config_file), *arguments])
            said = capsys.readouterr()
            return subprocess.CompletedProcess(arguments, code, said.out, said.err)

        detected = started("gpu", "detect")
        assert detected.returncode == 1
        assert "'NVIDIA Hypothetical 9000' is of no GPU type (PCI id 10de:9999)" in detected.stdout
        added = started("gpu", "detect", "--write", "HYP9000", "--device", "0")
        assert added.returncode == 0, added.stderr
        # The daemon tries the device before it claims. Nothing computes on one that NVML alone knows of.
        with Path(runner.state_dir, "gpus.d", "HYP9000.toml").open("a", encoding="utf-8") as file:
            # The last table is the device's.
            file.write("bandwidth_gb_s = 1000\npeak_tflops = { fp16 = 100 }\n")
            file.write('\n[environment]\nKR_EMULATE_CUDA = "268435456"\n')
        assert "is HYP9000" in started("gpu", "detect").stdout
        # A daemon takes the file when it starts.
        assert runner.stop() == 0
        runner.start()
        created = kernel_runner("leaderboard", "create", str(task), "--name", "sums", "--gpu", "HYP9000")
        assert created.returncode == 0, created.stderr
        submitted = kernel_runner(
            "submit", str(TASK / "solutions/correct/row_sums.py"), "--leaderboard", "sums", "--gpu", "HYP9000", "--wait"
        )
        assert submitted.returncode == 0, submitted.stdout + submitted.stderr
        view = runner.store.submission(1)
        assert {job.verdict for job in view.jobs} == {Verdict.ACCEPTED}
        ranked = next(run for job in view.jobs for run in job.runs if run.score_s is not None and not job.secret)
        (device,) = ranked.system_info["runner"]["devices"]
        assert (device["uuid"], device["driver"]) == (DEVICE["nvmlDeviceGetUUID"], "580.95.05")
        assert (device["before"]["temperature_c"], device["after"]["power_w"]) == (31, 72.31)
        shown = kernel_runner("leaderboard", "show", "sums", "--gpu", "HYP9000", "--json")
        assert len(json.loads(shown.stdout)) > 0
        assert "HYP9000" in kernel_runner("host", "list").stdout

        machine.show({**DEVICE, "nvmlDeviceGetTotalEccErrors": 1})
        # What is submitted from now on stays in the queue.
        waits = kernel_runner(
            "submit", str(TASK / "solutions/correct/row_sums.py"), "--leaderboard", "sums", "--gpu", "HYP9000"
        )
        assert waits.returncode == 0, waits.stderr
        wait_until(
            lambda: "not used: device" in kernel_runner("host", "list").stdout, "the host says that it is not fit"
        )
        wait_until(lambda: runner.store.submission(2).status.state == "queued", "its job waits again")
        assert runner.stop() == 0
