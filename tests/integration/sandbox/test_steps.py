"""Boot kind `steps` in real containers: files, chaining, result pipe, artifacts, endings."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Ending
from tests.integration.sandbox.conftest import MIB, Workshop
from tests.support.waiting import PATIENCE_S


def test_files_env_arguments_and_results_travel(workshop: Workshop) -> None:
    """A program finds its files below /work, its own variables, and its result lines come back in order."""
    source = b"""
import os, sys
print(sys.argv[1:], open('sub/dir/cases.txt').read(), os.environ['POPCORN_SEED'])
print('to stderr', file=sys.stderr)
with os.fdopen(int(os.environ['POPCORN_FD']), 'w') as out:
    out.write('test-count: 1\\ntest.0.spec: k: 1; n: 2\\n no colon here\\ncheck: fail\\n check :  pass ')
"""
    step = Step(
        name="test",
        argv=(workshop.python, "eval.py", "test", "cases.txt"),
        env={"POPCORN_SEED": "42"},
        files={"sub/dir/cases.txt": b"k: 1"},
    )
    observed: list[tuple[str, int, int]] = []
    report = workshop.run(
        workshop.spec(),
        StepsRequest(files={"eval.py": source}, steps=(step,)),
        on_progress=lambda *what: observed.append(what),
    )
    assert report.ok
    (result,) = report.steps
    assert result.stdout == "['test', 'cases.txt'] k: 1 42\n"
    assert result.stderr == "to stderr\n"
    assert result.result == {"test-count": "1", "test.0.spec": "k: 1; n: 2", "check": "pass"}
    assert list(result.result) == ["test-count", "test.0.spec", "check"]
    assert result.command.endswith("eval.py test cases.txt")
    assert result.duration_ns > 0
    assert observed == [("test", 0, 0)]
    assert report.outcome.ending is Ending.COMPLETED
    assert report.outcome.exit_code is None


def test_the_result_pipe_is_drained_while_the_program_runs(workshop: Workshop) -> None:
    """Two megabytes of result lines, far beyond a pipe's 64 KiB, block no process."""
    source = """
import os
from pathlib import PurePosixPath
with os.fdopen(int(os.environ['POPCORN_FD']), 'w') as out:
    out.write('report: ' + 'A' * 2_000_000 + '\\n')
    out.write('check: pass\\n')
"""
    step, _ = workshop.program(source)
    assert len(step.result["report"]) == 2_000_000
    assert step.result["check"] == "pass"


def test_exit_codes_and_signals_are_told_apart(workshop: Workshop) -> None:
    """exit(0) at once, an exit code and death by a signal are three different things.

    A compile step gets neither POPCORN_FD nor an open descriptor above 2. Twelve megabytes go in while progress comes
    out.
    """
    source = """
import os
def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
print(os.environ.get('POPCORN_FD'), [fd for fd in range(256) if is_open(fd)])
"""
    sh = ("/bin/sh", "-c")
    report = workshop.steps(
        Step(name="zero", argv=(workshop.python, "-c", "raise SystemExit(0)")),
        Step(name="code", argv=(*sh, "exit 112")),
        Step(name="signal", argv=(*sh, "kill -SEGV $$")),
        Step(name="absent", argv=("/no/such/program",)),
        Step(name="compile", argv=(workshop.python, "-c", source), result_pipe=False),
        Step(name="size", argv=(*sh, "wc -c < blob")),
        files={"blob": os.urandom(12 * MIB)},
    )
    assert [(step.name, step.exit_code, step.signal) for step in report.steps] == [
        ("zero", 0, None),
        ("code", 112, None),
        ("signal", None, 11),
        ("absent", 127, None),
        ("compile", 0, None),
        ("size", 0, None),
    ]
    zero, _, _, absent, compiles, size = report.steps
    assert zero.result == {}
    assert "/no/such/program" in absent.stderr
    assert compiles.stdout == "None [0, 1, 2]\n"
    assert size.stdout.strip() == str(12 * MIB)


def test_files_replace_what_a_program_planted(workshop: Workshop) -> None:
    """A link, a directory and a file in the way of the next step's files are replaced, not followed.

    A program that fills /work spoils its own next step, and not the container; the report says why.
    """
    plant = "ln -s /tmp/elsewhere cases.txt; mkdir -p eval.py/deep; echo x > sub; touch /tmp/elsewhere"
    look = "cat cases.txt eval.py sub/file; stat -c %F cases.txt; wc -c < /tmp/elsewhere"
    fill = "head -c 200000000 /dev/zero > filler; true"
    report = workshop.steps(
        Step(name="plant", argv=("/bin/sh", "-c", plant)),
        Step(
            name="look",
            argv=("/bin/sh", "-c", look),
            files={"cases.txt": b"1\n", "eval.py": b"2\n", "sub/file": b"3\n"},
        ),
        Step(name="fill", argv=("/bin/sh", "-c", fill)),
        Step(name="next", argv=("/bin/true",), files={"big": os.urandom(1 * MIB)}),
    )
    assert report.ok
    assert report.steps[1].stdout == "1\n2\n3\nregular file\n0\n", report.steps[1].stderr
    assert report.steps[3].exit_code == 126
    assert "No space left on device" in report.steps[3].stderr


def test_an_artifact_comes_back_and_remove_after_removes(workshop: Workshop) -> None:
    """Files that a step leaves are streamed out; sources named in remove_after are gone for the next step.

    Nothing but a regular file is read, and a named pipe does not hold init.
    """
    report = workshop.steps(
        Step(
            name="make",
            argv=("/bin/sh", "-c", "head -c 1000000 /dev/urandom > trace.bin; touch source.cu"),
            artifacts=("trace.bin", "never-there"),
            remove_after=("source.cu", "never-there"),
        ),
        Step(name="look", argv=("/bin/ls",)),
        Step(name="link", argv=("/bin/ln", "-s", "/etc/passwd", "a"), artifacts=("a",)),
        Step(name="pipe", argv=("/usr/bin/mkfifo", "b"), artifacts=("b",)),
    )
    ((name, media_type, data),) = report.artifacts
    assert (name, media_type, len(data)) == ("trace.bin", "application/octet-stream", 1_000_000)
    make, look, link, pipe = report.steps
    assert (make.stderr, look.stdout) == ("", "trace.bin\n")
    assert "no artifact 'a'" in link.stderr
    assert "not a regular file" in pipe.stderr


def test_a_write_end_in_flight_does_not_hold_init(workshop: Workshop) -> None:
    """A stdout pipe kept open inside a socket that no process holds never reaches its end of file."""
    source = """
import array, os, socket
a, b = socket.socketpair()
for fd in (1, a.fileno(), b.fileno()):
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
print('sent', flush=True)
"""
    step, report = workshop.program(source)
    assert step.stdout == "sent\n"
    assert not step.timed_out
    assert report.outcome.ending is Ending.COMPLETED


def test_noise_does_not_spoil_the_report(workshop: Workshop) -> None:
    """Output that JSON blows up sixfold is cut to what the report holds; results and later steps stay."""
    noise = "head -c 900000 /dev/urandom; echo 'check: pass' >&$POPCORN_FD"
    report = workshop.steps(
        Step(name="noise", argv=("/bin/sh", "-c", noise)),
        Step(name="after", argv=("/bin/echo", "hello")),
        report_bytes=2 * MIB,
    )
    assert report.outcome.ending is Ending.COMPLETED
    assert report.steps[0].result == {"check": "pass"}
    assert "output was left out" in report.steps[0].stderr
    assert report.steps[1].stdout == "hello\n"


def test_compilers_and_torch_extensions_work_as_the_worker(workshop: Workshop) -> None:
    """In the host root a C++ program and torch's load_inline compile, load and run under the worker's uid."""
    plain = "echo 'int main() { return 7; }' > a.cpp && c++ a.cpp -o a.out && ./a.out"
    inline = b"""
from torch.utils.cpp_extension import load_inline
module = load_inline(name='hello', cpp_sources='int answer() { return 42; }', functions=['answer'])
print(module.answer())
"""
    report = workshop.steps(
        Step(name="plain", argv=("/bin/sh", "-c", plain)),
        Step(name="torch", argv=(workshop.python, "inline.py"), env={"PATH": _path(workshop)}, timeout_s=PATIENCE_S),
        files={"inline.py": inline},
        memory_bytes=3 << 30,
        cpus=(0, 1),
    )
    assert report.ok, report.message
    assert report.steps[0].exit_code == 7, report.steps[0].stderr
    assert report.steps[1].stdout.endswith("42\n"), report.steps[1].stderr


def _path(workshop: Workshop) -> str:
    """Ninja stands beside the interpreter."""
    return f"{PurePosixPath(workshop.python).parent}:/usr/bin:/bin"
