"""`make test-stress`: runs tests several times in random order with every core kept busy; which fail, and how often.

A test that fails here and nowhere else depends on the machine, on its neighbours or on its order. Further arguments
are pytest's, and choose the tests: all of them without any. The exit code is 1 if a test failed in any run.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

#: Keeps one core busy, and ends with the process that started it.
_SPIN = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\nwhile True: pass\n"
_ALL = ("-n", "4", "--dist", "loadscope", "--no-loadscope-reorder")
_MAX_MESSAGE = 150
#: What pytest ends with: all passed, some failed.
_PASSED, _FAILED = 0, 1


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One test that failed in one run."""

    test: str
    message: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often the tests run (default 3)")
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="busy loops beside them (default: cores)")
    parser.add_argument("--seed", type=int, help="of the first run's order; each further run adds one")
    options, chosen = parser.parse_known_args(arguments)
    if options.runs < 1:
        parser.error(f"--runs is {options.runs}, expected a number from 1 on")
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    failures: list[Failure] = []
    broken = 0
    with ExitStack() as stack:
        for _ in range(options.busy):
            stack.enter_context(_busy_loop())
        for run in range(options.runs):
            print(f"== run {run + 1} of {options.runs}, {options.busy} busy loops, --seed {seed + run}", flush=True)
            code, found = _run(seed + run, chosen)
            failures += found
            broken += code not in (_PASSED, _FAILED) or (code == _FAILED and not found)
    print(table(failures, runs=options.runs))
    if broken:
        print(f"{broken} of {options.runs} runs ended before all tests had run")
    return 1 if failures or broken else 0


def table(failures: Sequence[Failure], *, runs: int) -> str:
    """Tests by the share of runs that they failed in, the worst first, with what they said last."""
    if not failures:
        return f"no test failed in {runs} runs"
    counts = Counter(failure.test for failure in failures)
    said = {failure.test: failure.message for failure in failures}
    rows = [f"| {count} of {runs} | {test} | {said[test]} |" for test, count in counts.most_common()]
    return "\n".join(["| failed | test | message |", "|---|---|---|", *rows])


def failures_of(report: Path) -> list[Failure]:
    """The failures of a JUnit report."""
    found = []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 pytest has just written it
        for kind in ("failure", "error"):
            broken = case.find(kind)
            if broken is not None:
                message = broken.get("message", "").partition("\n")[0][:_MAX_MESSAGE].replace("|", "\\|")
                name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
                found.append(Failure(test=name, message=message))
                break
    return found


def _run(seed: int, chosen: Sequence[str]) -> tuple[int, list[Failure]]:
    with tempfile.TemporaryDirectory(prefix="kernel-runner-stress-") as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.plugins.shuffle", "--shuffle", str(seed)]
        code = subprocess.call([*command, f"--junitxml={report}", *(chosen or _ALL)])
        return code, failures_of(report) if report.exists() else []


@contextmanager
def _busy_loop() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", _SPIN]) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
