"""Build archives between real containers: collected in one, unpacked in another before anything runs there."""

from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.host.build_archive import BuildArchive
from sandbox.protocol import ArchivePiece, PairRequest, Step, StepsRequest
from sandbox.spec import Ending
from tests.integration.sandbox.conftest import Workshop
from tests.support.waiting import PATIENCE_S

_LOOK = """
import os
from pathlib import Path
for path in sorted(Path('.').rglob('*')):
    seen = path.lstat()
    print(path, oct(seen.st_mode), seen.st_uid == os.getuid(), 0 if path.is_symlink() else seen.st_mtime_ns)
"""
_MAKE = (
    """
import os
from pathlib import Path
os.umask(0o022)
Path('cache/torch').mkdir(parents=True)
Path('cache/torch/kernel.so').write_bytes(os.urandom(3_000_000))
Path('cache/torch/link.so').symlink_to('kernel.so')
"""
    + _LOOK
)


def program(workshop: Workshop, source: str, *, keep: tuple[str, ...] = ()) -> StepsRequest:
    """A request that runs this text."""
    step = Step(name="test", argv=(workshop.python, "-c", source), timeout_s=PATIENCE_S)
    return StepsRequest(files={}, steps=(step,), keep=keep)


def test_an_archive_goes_from_box_to_box(workshop: Workshop, tmp_path: Path) -> None:
    """Same places, same modes, same owner, same times to the nanosecond; three pieces; again and again from one file.

    It lies in /work before a judge has its request; the judge's places hold what they held.
    """
    archive = BuildArchive(tmp_path)
    built = workshop.run(workshop.spec(), program(workshop, _MAKE, keep=("cache", "none")), into=archive)
    assert built.outcome.ending is Ending.COMPLETED
    assert archive.size_bytes > 2_900_000
    for _ in range(2):
        used = workshop.run(workshop.spec(), program(workshop, _LOOK), archive=archive)
        assert used.ok, used.message
        assert used.steps[0].stdout == built.steps[0].stdout
        assert "kernel.so 0o100644 True" in used.steps[0].stdout
    judge = """
request()
peer = line()
peer.send(b'look')
step('worker', peer.recv(100).decode())
step('judge', os.listdir('.'))
"""
    worker = """
line.recv(4)
line.send(' '.join(sorted(os.listdir('cache/torch'))).encode())
line.recv(1)
"""
    report = workshop.run(workshop.spec(workshop.pair_boot(judge, worker)), PairRequest(payload={}), archive=archive)
    assert report.ok, report.message
    assert [step.stdout for step in report.steps] == ["kernel.so link.so", "[]"]


@pytest.mark.parametrize("verdict", ["accepted", "wrong_answer"])
def test_what_a_worker_leaves_is_packed_when_it_is_dead_and_was_accepted(
    workshop: Workshop, tmp_path: Path, verdict: str
) -> None:
    """A process of its own that writes for ever does not write into the archive; nothing else is packed."""
    judged: dict[str, object] = {"verdict": verdict, "message": None, "assurance": {}}
    judge = f"""
request()
peer = line()
peer.send(b'look')
peer.recv(1)
step('first', 'x', judged={judged})
step('last', 'x', judged={{**{judged}, 'verdict': 'accepted'}})
"""
    worker = """
line.recv(4)
os.mkdir('cache')
if os.fork() == 0:
    os.setsid()
    while True:
        open('cache/grows', 'ab').write(b'x' * 1000)
while not os.path.exists('cache/grows'):
    pass
line.send(b'.')
line.recv(1)
"""
    archive = BuildArchive(tmp_path)
    request = PairRequest(payload={}, keep=("cache", "none"))
    report = workshop.run(workshop.spec(workshop.pair_boot(judge, worker)), request, into=archive)
    assert report.ok, report.message
    assert [step.name for step in report.steps] == ["first", "last"]
    assert (archive.size_bytes > 0) is (verdict == "accepted")
    if verdict == "accepted":
        used = workshop.run(workshop.spec(), program(workshop, _LOOK), archive=archive)
        assert "cache/grows 0o100644 True" in used.steps[0].stdout


@pytest.mark.parametrize("kind", ["steps", "pair"])
def test_an_archive_that_reaches_out_brings_down_its_box_and_nothing_else(
    workshop: Workshop, tmp_path: Path, kind: str
) -> None:
    """Nothing is run, and init says why."""
    sink = io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb") as zipped, tarfile.open(fileobj=zipped, mode="w|") as tar:
        tar.addfile(tarfile.TarInfo("../judge/verdict"))
    archive = BuildArchive(tmp_path)
    archive.take(ArchivePiece(data=sink.getvalue()))
    if kind == "steps":
        report = workshop.run(workshop.spec(), program(workshop, _LOOK), archive=archive)
    else:
        spec = workshop.spec(workshop.pair_boot("request(); step('ran', 'x')", "line.recv(1)"))
        report = workshop.run(spec, PairRequest(payload={}), archive=archive)
    assert report.ok is False
    assert "does not stay below /work" in (report.message or "")
    assert not report.steps


def test_more_than_an_archive_may_hold_is_refused_where_it_is_made(workshop: Workshop, tmp_path: Path) -> None:
    """Bytes that do not compress: none of them is sent."""
    source = "import os; os.mkdir('cache')\nwith open('cache/x', 'wb') as file:\n    file.write(os.urandom(66 << 20))"
    archive = BuildArchive(tmp_path)
    report = workshop.run(workshop.spec(), program(workshop, source, keep=("cache",)), into=archive)
    assert report.ok
    assert archive.size_bytes == 0
    assert "more than" in (archive.refused or "")


def test_half_an_archive_is_none(workshop: Workshop, tmp_path: Path) -> None:
    """The memory that is left does not suffice to pack: the kernel kills the packer, and the verdict stays."""
    source = """
import os
os.mkdir('cache')
with open('cache/x', 'wb') as file:
    file.write(os.urandom(48 << 20))
child = os.fork()
if child == 0:
    # The kernel kills it, and these bytes are what is left then.
    left = os.urandom(24 << 20)
    with open('fill', 'wb') as file:
        while True:
            file.write(bytes(1 << 20))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    archive = BuildArchive(tmp_path)
    spec = workshop.spec(memory_bytes=160 << 20)
    report = workshop.run(spec, program(workshop, source, keep=("cache",)), into=archive)
    assert report.ok, report
    assert report.steps[0].stdout == "-9\n", report.steps
    assert archive.size_bytes == 0
    assert "ended with signal 9" in (archive.refused or "")


@pytest.mark.parametrize(("end", "exit_code"), [("os.kill(os.getpid(), 9)", None), ("os._exit(1)", 1)])
def test_what_a_failed_program_leaves_is_not_collected(
    workshop: Workshop, tmp_path: Path, end: str, exit_code: int | None
) -> None:
    """Half a file or the lock of a compiler that was killed, or caches that no later run is to get."""
    source = f"import os; os.mkdir('cache'); open('cache/half', 'w').close(); {end}"
    archive = BuildArchive(tmp_path)
    request = program(workshop, source, keep=("cache",))
    if exit_code is not None:
        request = replace(request, steps=tuple(replace(step, continue_if="exit_0") for step in request.steps))
    report = workshop.run(workshop.spec(), request, into=archive)
    assert report.steps[0].exit_code == exit_code
    assert archive.size_bytes == 0
    assert archive.refused is None


def test_an_unrequested_archive_breaks_the_protocol(workshop: Workshop) -> None:
    """A container whose caller takes none must not send one."""
    report = workshop.run(workshop.spec(), program(workshop, _MAKE, keep=("cache",)))
    assert report.outcome.ending is Ending.BAD_REPORT
