"""The files of a spool: kept before they count, bounded, private, and never in the way of a start."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from runner.daemon.outcomes.spool import Spool, Spooled
from tests.unit.daemon.outcomes.samples import job, result


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the spool is; not made yet."""
    return tmp_path / "state/spool"


@pytest.fixture
def spool(directory: Path) -> Spool:
    """An empty spool with room."""
    return Spool(directory)


def the_only(spool: Spool) -> Spooled:
    """The one result that waits."""
    (found,) = spool.pending()
    return found


def test_what_was_put_is_found_by_the_next_process_in_order(spool: Spool, directory: Path) -> None:
    """Job, slot and result, oldest first, whatever the clock says."""
    for job_id in (9, 7, 8):
        assert spool.put(job(job_id), result(b"trace", x=job_id), slot=f"cpu{job_id}")
    later = Spool(directory)
    kept = [(found.job.key, found.slot) for found in later.pending()]
    assert kept == [((9, 2), "cpu9"), ((7, 2), "cpu7"), ((8, 2), "cpu8")]
    assert later.load(later.pending()[0]) == result(b"trace", x=9)
    assert later.count == 3
    assert later.put(job(1), result(), slot="cpu0")
    assert [found.job.id for found in later.pending()] == [9, 7, 8, 1]


def test_the_first_result_of_an_attempt_stays_until_it_is_removed(spool: Spool, directory: Path) -> None:
    """A slot and the thread that rescues its result may both write it.

    A committed result takes no room and is not delivered again; removing it twice is no error.
    """
    for _ in range(2):
        assert spool.put(job(), result(b"trace", x=1), slot="cpu0")
    found = the_only(spool)
    assert spool.load(found) == result(b"trace", x=1)
    assert spool.put(job(attempt=3), result(x=2), slot="cpu0")
    assert spool.count == 2
    for each in (found, *spool.pending()):
        spool.remove(each)
    assert spool.load(found) is None
    assert (spool.pending(), Spool(directory).count, list(directory.iterdir())) == ((), 0, [])


def test_only_the_daemons_user_may_read_it(spool: Spool, directory: Path) -> None:
    """Output of secret runs: directories 0700, files 0600, whatever the process's mask and an earlier mode are."""
    directory.mkdir(parents=True, mode=0o755)
    before = os.umask(0)
    try:
        assert spool.put(job(), result(), slot="cpu0")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (directory, *directory.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert len(modes) == 2


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


def test_damaged_files_are_removed_with_a_line_each(spool: Spool, directory: Path) -> None:
    """They stop no other: what can be read is delivered. Half a write, never acknowledged, goes too."""
    for job_id in (1, 2, 3, 4):
        assert spool.put(job(job_id), result(b"trace"), slot="cpu0")
    torn, empty, _, late = sorted(directory.glob("*.result"))
    torn.write_bytes(torn.read_bytes()[:-3])
    empty.write_bytes(b"")
    (directory / "00000009-9-1.part").write_bytes(b"half")
    later = Spool(directory)
    with capture_logs() as logs:
        for _ in range(2):
            assert [spooled.job.id for spooled in later.pending()] == [3, 4]
        late.write_bytes(late.read_bytes()[:-1])
        assert later.load(later.pending()[1]) is None
        assert [spooled.job.id for spooled in later.pending()] == [3]
    assert [line["event"] for line in logs] == ["spool_file_unreadable"] * 3
    assert [path.name for path in directory.iterdir()] == ["00000003-3-2.result"]


def test_a_disk_that_cannot_be_read_now_loses_nothing(
    spool: Spool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that may pass is no damage: the result is delivered when it has."""
    assert spool.put(job(), result(), slot="cpu0")
    found = the_only(spool)

    def fail(_: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(Path, "read_bytes", fail)
        later = Spool(directory)
        assert later.pending() == ()
        assert later.pending() == ()
        assert spool.load(found) is None
    assert [line["event"] for line in logs] == ["spool_failed"] * 2
    assert later.load(the_only(later)) == result()


def test_a_directory_that_cannot_be_read_now_loses_nothing(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results are still held, and so are their leases; the log says why once."""
    assert spool.put(job(), result(), slot="cpu0")
    found = the_only(spool)
    full = OSError(errno.EMFILE, "Too many open files")
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(Path, "iterdir", Mock(side_effect=full))
        assert spool.pending() == spool.pending() == (found,)
    assert [line["event"] for line in logs] == ["spool_failed"]
    assert spool.load(the_only(spool)) == result()


@pytest.mark.parametrize(
    ("call", "number"), [("open", errno.EDQUOT), ("fsync", errno.EIO), ("rename", errno.EROFS), ("mkdir", errno.ENOSPC)]
)
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
    assert [found.job.id for found in Spool(directory).pending()] == ([2] if call == "mkdir" else [1, 2])


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
