"""The vendors' profilers: their command lines, and what becomes of what they leave, from programs that play them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tasks.harness.shared.profilers import Tool, choose, missing, page_command, page_file, record_command, run
from tasks.harness.worker import profile_target

_ROOT = Path(__file__).resolve().parents[3]
TARGET = ("python", "-c", "pass")
OUT = Path("/made")

#: Plays Nsight Compute: runs what stands behind its options, keeps what that printed, prints it as a page.
NCU = """#!{python}
import subprocess, sys
arguments = sys.argv[1:]
if arguments[0] == "--import":
    print("page of", open(arguments[1]).read().strip())
    sys.exit(0)
at = arguments.index("--export")
done = subprocess.run(arguments[at + 2 :], capture_output=True, text=True)
sys.stderr.write(done.stderr)
if done.returncode == 0:
    open(arguments[at + 1] + ".ncu-rep", "w").write(done.stdout)
sys.exit(done.returncode)
"""
SUBMISSION = "calls = []\ndef custom_kernel(data):\n    calls.append(1)\n    print(len(calls), float(data[0].sum()))\n"


def test_each_profiler_is_called_by_its_manual() -> None:
    """What is recorded, where it goes, and what stands behind the options."""
    assert record_command(Tool.NCU, TARGET, OUT) == (
        *("ncu", "--target-processes", "all", "--profile-from-start", "off", "--set", "full"),
        *("--force-overwrite", "--export", "/made/profile", *TARGET),
    )
    assert page_command(Tool.NCU, OUT) == ("ncu", "--import", "/made/profile.ncu-rep", "--page", "details")
    assert record_command(Tool.ROCPROFV3, TARGET, OUT) == (
        *("rocprofv3", "--kernel-trace", "--stats", "--output-format", "csv"),
        *("--output-directory", "/made", "--output-file", "profile", "--", *TARGET),
    )
    assert (page_command(Tool.ROCPROFV3, OUT), page_file(Tool.ROCPROFV3, OUT).name) == (
        None,
        "profile_kernel_stats.csv",
    )
    assert record_command(Tool.ROCPROF, TARGET, OUT) == (
        *("rocprof", "--stats", "--timestamp", "on", "-o", "/made/profile.csv", *TARGET),
    )
    assert page_file(Tool.ROCPROF, OUT).name == "profile.stats.csv"


@pytest.mark.parametrize(
    ("hip", "installed", "tool"),
    [
        (False, {"ncu", "rocprofv3"}, Tool.NCU),
        (False, {"rocprofv3"}, None),
        (True, {"ncu", "rocprof", "rocprofv3"}, Tool.ROCPROFV3),
        (True, {"rocprof"}, Tool.ROCPROF),
        (True, set(), None),
    ],
)
def test_the_best_that_is_installed_is_taken(*, hip: bool, installed: set[str], tool: Tool | None) -> None:
    """The vendor's, the newer before the older; none is no error."""
    assert choose(hip=hip, which=lambda name: name if name in installed else None) is tool


def test_a_missing_profiler_is_named() -> None:
    """The sentence says which, and what to do."""
    assert "there is no ncu on PATH in this container (install it" in missing(hip=False)
    assert "no rocprofv3 nor rocprof on PATH" in missing(hip=True)


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the player of Nsight Compute first on PATH."""
    script = tmp_path / "bin" / "ncu"
    script.parent.mkdir()
    script.write_text(NCU.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    return tmp_path


def test_one_call_of_the_submission_is_made_below_the_profiler(ncu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own finds submission and inputs, warms up and calls; page and file come back."""
    monkeypatch.chdir(ncu)
    (ncu / "submission.py").write_text(SUBMISSION)
    for name in ("call", "made"):
        (ncu / name).mkdir()
    profile_target.write(ncu / "call", submission="submission.py", program=None, data=(torch.ones(3),))
    module = "tasks.harness.worker.profile_target"
    start = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from {module} import main; sys.exit(main())"
    target = (sys.executable, "-P", "-c", start, str(ncu / "call"))
    report = run(Tool.NCU, target, ncu / "made", limit_s=60, most_bytes=1 << 20)
    assert report.text == "page of 1 3.0\n2 3.0\n"
    assert (report.data, report.suffix) == (b"1 3.0\n2 3.0\n", "ncu-rep")


def test_what_goes_wrong_is_said_in_the_report(ncu: Path) -> None:
    """A program that fails, one that takes too long, a file that is too large, a profiler that is not there."""
    fails = run(Tool.NCU, ("sh", "-c", "echo no counters >&2; exit 3"), ncu, limit_s=60, most_bytes=9)
    assert fails.text == "Nsight Compute ended with exit code 3 and left no report:\nno counters\n"
    late = run(Tool.NCU, ("sleep", "60"), ncu, limit_s=0.5, most_bytes=9)
    assert late.text.startswith("Nsight Compute did not finish within 0 s")
    large = run(Tool.NCU, ("echo", "0123456789"), ncu, limit_s=60, most_bytes=9)
    assert large.text == "page of 0123456789\n\n(profile.ncu-rep is left out: 11 bytes, at most 9 are kept)"
    absent = run(Tool.ROCPROF, ("true",), ncu, limit_s=60, most_bytes=9)
    assert absent.text.startswith("rocprof could not be used: ")
    assert {report.data for report in (fails, late, large, absent)} == {b""}
