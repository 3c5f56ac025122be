"""The files of a spool: kept before they count, bounded, private, and never in the way of a start."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.daemon.outcomes.spool import ASIDE, DROPPED, Spool, Spooled
from tests.unit.daemon.outcomes.spool.samples import job, result

MIB = 1 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the spool is; not made yet."""
    return tmp_path / "state/spool"


@pytest.fixture
def spool(directory: Path) -> Spool:
    """An empty spool with room."""
    return Spool(directory, max_bytes=MIB)


def evidence(directory: Path) -> list[str]:
    """What was set aside."""
    return sorted(path.name for path in (directory / ASIDE).iterdir()) if (directory / ASIDE).exists() else []


def the_only(spool: Spool) -> Spooled:
    """The one result that waits."""
    (found,) = spool.pending()
    return found


def test_what_was_put_is_found_by_the_next_process_in_order(spool: Spool, directory: Path) -> None:
    """Job, slot and result, oldest first, whatever the clock says."""
    for job_id in (9, 7, 8):
        assert spool.put(job(job_id), result(b"trace", x=job_id), slot=f"cpu{job_id}")
    later = Spool(directory, max_bytes=MIB)
    assert [(found.job.id, found.job.attempt, found.slot) for found in later.pending()] == [
        (9, 2, "cpu9"),
        (7, 2, "cpu7"),
        (8, 2, "cpu8"),
    ]
    assert later.load(later.pending()[0]) == result(b"trace", x=9)
    assert later.count == 3
    assert later.put(job(1), result(), slot="cpu0")
    assert [found.job.id for found in later.pending()] == [9, 7, 8, 1]


def test_what_was_removed_is_gone_for_good(spool: Spool, directory: Path) -> None:
    """A committed result takes no room and is not delivered again; removing it twice is no error."""
    assert spool.put(job(), result(b"trace"), slot="cpu0")
    found = the_only(spool)
    spool.remove(found)
    spool.remove(found)
    assert spool.load(found) is None
    assert (spool.pending(), spool.size_bytes, Spool(directory, max_bytes=MIB).count) == ((), 0, 0)


def test_the_first_result_of_an_attempt_stays(spool: Spool) -> None:
    """A slot and the thread that rescues its result may both write it."""
    assert spool.put(job(), result(x=1), slot="cpu0")
    assert spool.put(job(), result(x=1), slot="cpu0")
    assert spool.load(the_only(spool)) == result(x=1)
    assert spool.put(job(attempt=3), result(x=2), slot="cpu0")
    assert spool.count == 2


def test_only_the_daemons_user_may_read_it(spool: Spool, directory: Path) -> None:
    """Output of secret runs: directories 0700, files 0600, whatever the process's mask and an earlier mode are."""
    directory.mkdir(parents=True, mode=0o755)
    before = os.umask(0)
    try:
        assert spool.put(job(), result(), slot="cpu0")
        spool.set_aside(the_only(spool), "refused")
        assert spool.put(job(), result(), slot="cpu0")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (directory, *directory.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert len(modes) == 4


def test_a_result_is_synced_before_it_has_its_name_and_the_directory_after(
    spool: Spool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What survives a power cut is what was said to be kept."""
    story: list[str] = []
    sync, rename = os.fsync, os.rename

    def told_sync(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        story.append(f"sync {kind}")
        sync(descriptor)

    def told_rename(source: Path, target: Path) -> None:
        story.append("rename")
        rename(source, target)

    directory.mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", told_sync)
    monkeypatch.setattr(os, "rename", told_rename)
    assert spool.put(job(), result(), slot="cpu0")
    assert story == ["sync file", "rename", "sync directory"]


def test_torn_and_foreign_files_are_set_aside_with_a_line_each(spool: Spool, directory: Path) -> None:
    """They stop no other: what can be read is delivered. Half a write, never acknowledged, is removed."""
    for job_id in (1, 2, 3):
        assert spool.put(job(job_id), result(b"trace"), slot="cpu0")
    torn, flipped, _ = sorted(directory.glob("*.result"))
    torn.write_bytes(torn.read_bytes()[:-3])
    flipped.write_bytes(flipped.read_bytes().replace(b"trace", b"TRACE", 1))
    (directory / "notes.txt").write_text("an operator's", encoding="utf-8")
    (directory / "00000009-9-1.result.part").write_bytes(b"half")
    (directory / "00000010-10-1.result").mkdir()
    os.mkfifo(directory / "00000011-11-1.result")
    (directory / "00000012-12-1.result").symlink_to("/etc/hostname")
    with capture_logs() as logs:
        later = Spool(directory, max_bytes=MIB)
        assert [found.job.id for found in later.pending()] == [3]
        assert [found.job.id for found in later.pending()] == [3]
    said = [str(line["reason"]) for line in logs if line["event"] == "spool_file_set_aside"]
    assert len(said) == 6
    assert sum("torn" in reason for reason in said) == 1
    assert sum("damaged" in reason for reason in said) == 1
    assert len(evidence(directory)) == 6
    assert sorted(path.name for path in directory.iterdir()) == ["00000003-3-2.result", ASIDE]


def test_a_result_damaged_while_it_waits_is_set_aside(spool: Spool, directory: Path) -> None:
    """Found when it is to be delivered."""
    assert spool.put(job(), result(b"trace"), slot="cpu0")
    found = the_only(spool)
    found.path.write_bytes(found.path.read_bytes()[:-1])
    assert spool.load(found) is None
    assert spool.pending() == ()
    assert evidence(directory) == [found.path.name]


def test_a_disk_that_cannot_be_read_now_loses_nothing(
    spool: Spool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that may pass is no damage: the result is delivered when it has."""
    assert spool.put(job(), result(), slot="cpu0")
    found = the_only(spool)
    opened = os.open

    def fail(path: Path, *arguments: int) -> int:
        if path == found.path:
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *arguments)

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(os, "open", fail)
        later = Spool(directory, max_bytes=MIB)
        assert later.pending() == ()
        assert later.pending() == ()
        assert spool.load(found) is None
    assert [line["event"] for line in logs] == ["spool_failed"] * 2
    assert later.load(the_only(later)) == result()
    assert evidence(directory) == []


def test_without_room_artifacts_go_first_and_the_report_says_so(directory: Path) -> None:
    """The result itself is small."""
    spool = Spool(directory, max_bytes=20_000)
    with capture_logs() as logs:
        assert spool.put(job(), result(b"x" * 15_000, b"y" * 15_000, a=1), slot="cpu0")
    kept = spool.load(the_only(spool))
    assert kept == result(a=1, **{DROPPED: ["trace-0", "trace-1"]})
    assert [line["event"] for line in logs] == ["spool_full_artifacts_dropped"]


def test_a_full_spool_says_no_once_and_keeps_what_it_has(directory: Path) -> None:
    """Without a new line for every try; and with room again it works again."""
    spool = Spool(directory, max_bytes=4_000)
    kept = 0
    while spool.put(job(kept), result(x=kept), slot="cpu0"):
        kept += 1
    assert 1 < kept < 10
    with capture_logs() as logs:
        for _ in range(5):
            assert not spool.put(job(99), result(b"trace"), slot="cpu0")
    assert logs == []
    assert [found.job.id for found in spool.pending()] == list(range(kept))
    assert spool.size_bytes <= 4_000
    spool.max_bytes = MIB
    with capture_logs() as logs:
        assert spool.put(job(99), result(), slot="cpu0")
        spool.max_bytes = 0
        assert not spool.put(job(100), result(), slot="cpu0")
    assert [line["event"] for line in logs] == ["spool_failed"]


def test_evidence_is_bounded_and_makes_way(directory: Path) -> None:
    """It takes a quarter of the room at most, the oldest goes first, and results come before it."""
    spool = Spool(directory, max_bytes=40_000)
    for number in range(10):
        assert spool.put(job(number), result(b"x" * 3_000), slot="cpu0")
        found = the_only(spool)
        os.utime(found.path, ns=(number, number))
        spool.set_aside(found, "refused")
    assert [name.split("-")[1] for name in evidence(directory)] == ["8", "9"]
    for number in range(4):
        assert spool.put(job(number), result(b"x" * 9_000), slot="cpu0")
    assert evidence(directory) == []
    assert spool.size_bytes <= 40_000
    assert all(found is not None and found.artifacts for found in map(spool.load, spool.pending()))


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename", "mkdir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_fails_is_an_answer_and_costs_no_older_result(
    spool: Spool, directory: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """Wherever it fails: False, one line with the reason, nothing half-written left, and later it works again."""
    if call != "mkdir":
        assert spool.put(job(1), result(x=1), slot="cpu0")
    before = sorted(directory.glob("*"))
    real = getattr(os, call)

    def fail(first: object, *rest: object, **named: object) -> object:
        writes = call != "open" or bool(int(str(rest[0])) & os.O_CREAT)
        if writes:
            raise OSError(number, os.strerror(number))
        return real(first, *rest, **named)

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(os, call, fail)
        for _ in range(3):
            assert not spool.put(job(2), result(b"trace", x=2), slot="cpu0")
    assert [line["event"] for line in logs] == ["spool_failed"]
    assert os.strerror(number) in str(logs[0]["reason"])
    assert sorted(directory.glob("*")) == before
    assert spool.put(job(2), result(x=2), slot="cpu0")
    assert [found.job.id for found in Spool(directory, max_bytes=MIB).pending()] == ([2] if call == "mkdir" else [1, 2])


def test_what_may_not_survive_a_power_cut_does_not_count(
    spool: Spool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory could not be synced after the rename: the file must not turn up later as if it had been kept."""
    sync = os.fsync

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    directory.mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", fail)
    assert not spool.put(job(), result(), slot="cpu0")
    assert list(directory.iterdir()) == []


def test_a_process_killed_while_it_writes_leaves_nothing_half(tmp_path: Path) -> None:
    """SIGKILL in mid-stream: whatever was said to be kept is there, and nothing else is taken for a result."""
    program = textwrap.dedent(
        """
        import itertools, sys
        from pathlib import Path
        from runner.daemon.outcomes.spool import Spool
        from tests.unit.daemon.outcomes.spool.samples import job, result

        spool = Spool(Path(sys.argv[1]), max_bytes=1 << 30)
        for number in itertools.count(1):
            assert spool.put(job(number), result(b"x" * 200_000, n=number), slot="cpu0")
            print(number, flush=True)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "spool")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[5],
    )
    assert child.stdout is not None
    with child, child.stdout:
        for line in child.stdout:
            if int(line) == 20:
                child.send_signal(signal.SIGKILL)
        said = 20
    spool = Spool(tmp_path / "spool", max_bytes=1 << 30)
    found = [waiting.job.id for waiting in spool.pending()]
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= said
    assert evidence(tmp_path / "spool") == []
    assert spool.load(spool.pending()[-1]) == result(b"x" * 200_000, n=len(found))
