"""The plugin that counts core-seconds sees what children use, also after their end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.plugins.cores import core_seconds

ROOT = Path(__file__).resolve().parents[3]
_BURN = "import time\nwhile time.process_time() < 0.5:\n    pass\n"
_TEST = f"import subprocess, sys\n\n\ndef test_it() -> None:\n    subprocess.run([sys.executable, '-c', {_BURN!r}])\n"


def test_a_child_counts_while_it_runs_and_afterwards() -> None:
    """It is told by the child itself when it has used its half second."""
    before = core_seconds(os.getpid())
    program = _BURN + "print(flush=True)\ninput()\n"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert core_seconds(os.getpid()) - before > 0.4
        child.communicate(b"\n")
    assert core_seconds(os.getpid()) - before > 0.4


def test_each_module_is_listed_with_what_it_used(tmp_path: Path) -> None:
    """At the end of a run that asks for it."""
    (tmp_path / "test_burns.py").write_text(_TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.plugins.cores", "-p", "no:cacheprovider", "--rootdir", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "test_burns.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.endswith(" test_burns.py"))
    assert float(line.split()[0]) > 0.4
