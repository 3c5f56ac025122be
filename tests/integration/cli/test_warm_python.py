"""The interpreter with torch that tests start commands with: a process as any other, to whoever starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.warm_python import warm_python


@pytest.fixture(scope="module", name="warm")
def _warm(evaluation_python: Path) -> Iterator[Path]:
    with (
        tempfile.TemporaryDirectory(prefix="kernel-runner-") as folder,
        warm_python(evaluation_python, Path(folder)) as it,
    ):
        yield it


@pytest.mark.parametrize(("code", "expected"), [("", 0), ("raise SystemExit(7)", 7), ("1 / 0", 1)])
def test_it_ends_as_its_code_does(warm: Path, code: str, expected: int) -> None:
    """And passes on arguments, variables, directory, descriptors and what was printed."""
    read, write = os.pipe()
    text = (
        "import os, sys; found = 'torch' in sys.modules; import torch; "
        f"os.write({write}, b'through'); print(sys.argv[1:], os.environ['MINE'], os.getcwd(), input(), found)\n{code}"
    )
    done = subprocess.run(
        [str(warm), "-P", "-c", text, "a", "b"],
        input="line\n",
        capture_output=True,
        text=True,
        cwd="/usr",
        env={"MINE": "yes"},
        pass_fds=[write],
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(write)
    with os.fdopen(read, "rb") as passed:
        assert passed.read() == b"through"
    assert (done.returncode, done.stdout) == (expected, "['a', 'b'] yes /usr line True\n"), done.stderr
    assert ("ZeroDivisionError" in done.stderr) == (expected == 1)


def test_signals_reach_it_and_its_death_is_seen(warm: Path) -> None:
    """An interrupt is passed on; a killed one takes its process with it; who dies by a signal is seen to."""
    text = "import os, time\ntry:\n    print(os.getpid(), flush=True)\n    time.sleep(600)\n"
    text += "except KeyboardInterrupt:\n    os.abort()"
    with subprocess.Popen([str(warm), "-c", text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == -signal.SIGABRT
    with subprocess.Popen([str(warm), "-c", text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its process is gone")
