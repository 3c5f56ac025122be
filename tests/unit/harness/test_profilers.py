"""The vendors' profilers: their command lines, and what becomes of what they leave, from programs that play them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tasks.harness.shared import profilers
from tasks.harness.shared.profilers import (
    NCU_FILES,
    Capture,
    Tool,
    missing,
    page_command,
    profiler_of,
    record_command,
    run,
)
from tasks.harness.worker import profile_program, profile_target
from tests.fakes.ncu import HOLLOW, install
from tests.support.waiting import PATIENCE_S

_ROOT = Path(__file__).resolve().parents[3]
TARGET = ("python", "-c", "pass")
OUT = Path("/made")

SUBMISSION = "calls = []\ndef custom_kernel(data):\n    calls.append(1)\n    print(len(calls), float(data[0].sum()))\n"


def test_each_profiler_is_called_by_its_manual() -> None:
    """What is recorded, where it goes, and what stands behind the options; each value is an argument of its own."""
    odd = Capture(kernel="regex:a b;$(c)'", kernel_base="demangled", launches=3)
    assert record_command(Tool.NCU, TARGET, OUT, odd) == (
        *("ncu", "--config-file", "off", "--target-processes", "all", "--nvtx", "--nvtx-include", "custom_kernel/"),
        *("--set", "full", "--replay-mode", "kernel", "--clock-control", "none"),
        *("--kernel-name-base", "demangled", "--kernel-name", "regex:a b;$(c)'", "--launch-count", "3"),
        *("--force-overwrite", "--export", "/made/profile", *TARGET),
    )
    assert "--kernel-name" not in record_command(Tool.NCU, TARGET, OUT, Capture())
    page = ("ncu", "--config-file", "off", "--import", "/made/profile.ncu-rep", "--page", "details")
    assert [page_command(OUT, as_csv=as_csv) for as_csv in (False, True)] == [page, (*page, "--csv")]
    assert record_command(Tool.ROCPROFV3, TARGET, OUT, Capture()) == (
        *("rocprofv3", "--kernel-trace", "--stats", "--output-format", "csv"),
        *("--output-directory", "/made", "--output-file", "profile", "--", *TARGET),
    )


@pytest.mark.parametrize(("hip", "name"), [(False, "ncu"), (True, "rocprofv3")])
def test_a_missing_profiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, hip: bool, name: str) -> None:
    """It is the vendor's; the sentence says which, and what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"there is no {name} on PATH in this container (install it" in str(missing(profiler_of(hip=hip)))
    (tmp_path / name).touch(mode=0o755)
    assert missing(profiler_of(hip=hip)) is None


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the profiler's files, with the stand-in of Nsight Compute first on PATH."""
    install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "made"
    folder.mkdir()
    return folder


def test_one_call_of_the_submission_is_made_below_the_profiler(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A process of its own finds submission and inputs, warms up and calls; report, text and CSV come back."""
    (tmp_path / "submission.py").write_text(SUBMISSION)
    (tmp_path / "call").mkdir()
    profile_target.write(tmp_path / "call", submission="submission.py", program=None, data=(torch.ones(3),))
    module = "tasks.harness.worker.profile_target"
    start = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from {module} import main; sys.exit(main())"
    target = (sys.executable, "-P", "-c", start, str(tmp_path / "call"))
    report = run(Tool.NCU, target, made, capture=Capture(kernel="regex:^reduce$"), limit_s=PATIENCE_S)
    assert report.failure is None, report
    assert report.output.startswith("1 3.0\n2 3.0\n")
    assert list(report.files) == list(NCU_FILES)
    assert json.loads(report.files["ncu-rep"])["kernels"] == ["reduce"]
    assert report.text == report.files["ncu-details.txt"].decode()
    assert report.text.startswith("  reduce (1, 1, 1)")
    (row,) = csv.DictReader(report.files["ncu-details.csv"].decode().splitlines())
    assert row["Kernel Name"] == "reduce"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kernel", ["regex:nothing", HOLLOW])
def test_a_capture_without_a_kernel_is_a_failure(made: Path, kernel: str) -> None:
    """Though the profiler ends with 0, with a report or without one."""
    capture = Capture(kernel=kernel, kernel_base="mangled")
    report = run(Tool.NCU, ("true",), made, capture=capture, limit_s=PATIENCE_S)
    sentence = f"Nsight Compute captured no kernel whose mangled name matches {kernel!r} in the range custom_kernel"
    assert report.failure is not None
    assert report.failure.startswith(sentence)
    assert (kernel == HOLLOW) or "No kernels were profiled" in report.failure
    assert report.files == {}


@pytest.mark.parametrize("kernel", [None, "reduce", "nothing"])
def test_a_tasks_own_program_runs_below_the_profiler(made: Path, kernel: str | None) -> None:
    """Its lines come first, then those of the capture, whose files lie beside it; without ncu it runs as it is."""
    # None: no profiler is there.
    path = "/usr/bin:/bin" if kernel is None else os.environ["PATH"]
    read, write = os.pipe()
    start = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from {profile_program.__name__} import main; sys.exit(main())"
    )
    say = f"import os; os.write({write}, b'check: pass\\n'); print(os.environ.get('POPCORN_NCU'))"
    done = subprocess.run(
        [sys.executable, "-c", start, "profile.2", json.dumps({"kernel": kernel}), sys.executable, "-c", say],
        cwd=made,
        env={"PATH": path, "POPCORN_FD": str(write)},
        pass_fds=(write,),
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(write)
    with os.fdopen(read) as results:
        lines = dict(line.rstrip("\n").split(": ", 1) for line in results)
    files = [path.name for path in sorted(made.iterdir())]
    if kernel is None:
        assert (done.returncode, done.stdout, lines, files) == (0, "None\n", {"check": "pass"}, [])
        assert done.stderr.startswith("This is torch's profile.")
        return
    assert done.stdout.startswith("1\n")
    assert (lines["check"], lines["benchmark.0.runner.profiler"]) == ("pass", "ncu")
    nothing = lines.get("runner.nothing_captured")
    if kernel == "nothing":
        assert "captured no kernel whose function name matches 'nothing'" in str(nothing)
        assert (done.returncode, files) == (1, [])
    else:
        assert (done.returncode, nothing, files) == (0, None, sorted(f"profile.2.{suffix}" for suffix in NCU_FILES))


def test_what_goes_wrong_is_said_in_the_report(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that fails, one that takes too long, a file that is too large, a profiler that is not there."""
    fails = run(Tool.NCU, ("sh", "-c", "echo no counters; exit 3"), made, capture=Capture(), limit_s=PATIENCE_S)
    assert fails.failure == (
        "Nsight Compute ended with exit code 3; ==ERROR== The application returned an error code (3)."
    )
    assert "no counters" in fails.text
    late = run(Tool.NCU, ("sleep", "60"), made, capture=Capture(), limit_s=0.5)
    assert str(late.failure).startswith("Nsight Compute did not finish within 0 s")
    monkeypatch.setattr(profilers, "FILES", dict.fromkeys(NCU_FILES, ("", 9)))
    large = run(Tool.NCU, ("true",), made, capture=Capture(), limit_s=PATIENCE_S)
    assert "ncu-rep is left out: " in str(large.failure)
    absent = run(Tool.ROCPROFV3, ("true",), made, capture=Capture(), limit_s=PATIENCE_S)
    assert (absent.text.startswith("rocprofv3 could not be used: "), absent.failure) == (True, None)
    assert [report.files for report in (fails, late, large, absent)] == [{}] * 4
