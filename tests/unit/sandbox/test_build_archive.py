"""Build archives: what may travel from a build to a run, and that it arrives as it was."""

from __future__ import annotations

import gzip
import io
import os
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox import protocol
from sandbox.host.build_archive import BuildArchive
from sandbox.inside.build_archive import MAX_CONTENT_BYTES, MAX_ENTRIES, Refused, pack, unpack
from sandbox.inside.connection import IncomingRequest
from sandbox.protocol import ArchivePiece, FrameError


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, as /work is a worker's."""
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def packed(*keep: str) -> bytes:
    """The archive of these names below the working directory."""
    sink = os.memfd_create("out")
    try:
        pack(keep, sink)
        return os.pread(sink, os.fstat(sink).st_size, 0)
    finally:
        os.close(sink)


def archive(*members: tarfile.TarInfo) -> bytes:
    """An archive that our packer would not make."""
    sink = io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb") as zipped, tarfile.open(fileobj=zipped, mode="w|") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return sink.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", size: int = 0) -> tarfile.TarInfo:
    """One entry of such an archive."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


def test_what_is_packed_arrives_as_it_was(inside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content, modes, links and times to the nanosecond, of folders too; what was not asked for stays.

    So does torch's lock, for whose removal a builder that finds it waits. Of nothing there is not even an archive.
    """
    assert packed("cache", "eval.out") == b""
    (inside / "cache/deep/empty").mkdir(parents=True)
    (inside / "cache/deep/lib.so.1").write_bytes(b"\0binary\xff" * 5000)
    (inside / "cache/deep/lib.so").symlink_to("lib.so.1")
    (inside / "cache/name with \udcff byte").write_text("odd")
    (inside / "cache/lock").touch()
    (inside / "eval.out").write_text("program")
    (inside / "eval.out").chmod(0o755)
    (inside / "secret").write_text("stays")
    for number, name in enumerate(("cache/deep/lib.so.1", "eval.out", "cache/deep/empty", "cache/deep", "cache")):
        time_ns = 1_700_000_000_123_456_789 + number
        os.utime(inside / name, ns=(time_ns, time_ns))
    data = packed("cache", "eval.out", "not there")

    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    unpack(data)
    assert _tree(there) == {name: what for name, what in _tree(inside).items() if name not in ("secret", "cache/lock")}


def _tree(root: Path) -> dict[str, tuple[object, ...]]:
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            None if path.is_symlink() else path.lstat().st_mtime_ns,
            path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None,
        )
        for path in root.rglob("*")
    }


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_CONTENT_BYTES + 1)


def _many(path: Path) -> None:
    path.mkdir()
    for number in range(MAX_ENTRIES + 1):
        (path / str(number)).touch()


def _deep(path: Path) -> None:
    # Longer than a path may be, made step by step.
    home = Path.cwd()
    path.mkdir()
    os.chdir(path)
    for _ in range(30):
        Path("d" * 200).mkdir()
        os.chdir("d" * 200)
    os.chdir(home)


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (lambda path: path.symlink_to("/etc/passwd"), "is a link to '/etc/passwd'"),
        (lambda path: path.symlink_to("../../judge"), r"expected a relative name without '\.\.'"),
        (lambda path: path.symlink_to("a/../../judge"), r"expected a relative name without '\.\.'"),
        (lambda path: path.symlink_to("/dev/null"), "is a link"),
        (os.mkfifo, "neither file nor folder"),
        (_socket, "neither file nor folder"),
        (lambda path: (path.touch(), path.chmod(0o4755)), "set-uid"),
        (lambda path: (path.mkdir(), path.chmod(0o2755)), "set-gid"),
        (_sparse, f"more than {MAX_CONTENT_BYTES} bytes"),
        (_many, f"more than {MAX_ENTRIES} files"),
    ],
    ids=["absolute", "climbing", "climbing-later", "device", "fifo", "socket", "set-uid", "set-gid", "sparse", "many"],
)
def test_what_may_not_travel_is_refused_before_a_byte_is_written(
    inside: Path, plant: Callable[[Path], object], reason: str
) -> None:
    """One such entry, and there is no archive."""
    plant(inside / "planted")
    sink = os.memfd_create("out")
    try:
        with pytest.raises(Refused, match=reason):
            pack(["planted"], sink)
        assert os.fstat(sink).st_size == 0
    finally:
        os.close(sink)


def test_names_that_are_too_long_are_no_trap(inside: Path) -> None:
    """A tree deeper than paths can be ends the packing, and does not hang it."""
    _deep(inside / "planted")
    with pytest.raises(OSError, match="File name too long"):
        packed("planted")


@pytest.mark.parametrize(
    "bad",
    [
        member("../judge/x", size=1),
        member("/judge/x", size=1),
        member("x", tarfile.SYMTYPE, link="/judge"),
        member("x", tarfile.SYMTYPE, link="../judge"),
        member("x", tarfile.LNKTYPE, link="y"),
        member("x", tarfile.FIFOTYPE),
        member("x", tarfile.CHRTYPE),
        member("x", tarfile.BLKTYPE),
    ],
    ids=["climbs", "absolute", "link", "climbing-link", "hard-link", "fifo", "character-device", "block-device"],
)
def test_an_archive_from_elsewhere_is_checked_again(inside: Path, bad: tarfile.TarInfo) -> None:
    """The container that made it may have been anybody's."""
    with pytest.raises((Refused, ValueError)):
        unpack(archive(bad))
    assert not list(inside.iterdir())


def test_nothing_is_written_through_a_link_of_the_archive(inside: Path, tmp_path: Path) -> None:
    """Links are made last, and over nothing: an archive may not take the place of what the container has."""
    data = archive(member("a", tarfile.SYMTYPE, link="b"), member("b", tarfile.DIRTYPE), member("a/x", size=1))
    with pytest.raises(FileExistsError):
        unpack(data)
    assert not (inside / "b/x").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    (inside / "x").write_text("ours")
    with pytest.raises(FileExistsError):
        unpack(archive(member("x", size=1)))
    assert (inside / "x").read_text() == "ours"


def test_a_few_bytes_do_not_unpack_to_terabytes(inside: Path) -> None:
    """The reader stops at the cap, whatever the archive promises."""
    sink = io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1) as zipped:
        huge = member("x", size=1 << 40)
        huge.size = 1 << 40
        zipped.write(huge.tobuf(tarfile.GNU_FORMAT))
        for _ in range((MAX_CONTENT_BYTES >> 20) + 100):
            zipped.write(bytes(1 << 20))
    with pytest.raises(Refused, match="more than"):
        unpack(sink.getvalue())
    assert (inside / "x").stat().st_size <= MAX_CONTENT_BYTES + 100 * (1 << 20)


def _announced(size: int) -> IncomingRequest:
    """A request that an archive of this size follows."""
    incoming = IncomingRequest()
    incoming.take({"type": "request", "protocol": protocol.VERSION, "archive_bytes": size})
    return incoming


def test_an_archive_is_kept_as_it_came_and_counted(tmp_path: Path) -> None:
    """Bytes in, the same bytes out, in frames that init takes; any number of times."""
    archive = BuildArchive(tmp_path)
    data = os.urandom(protocol.ARCHIVE_PIECE_BYTES * 2 + 5)
    for begin in range(0, len(data), 700_000):
        archive.take(ArchivePiece(data=data[begin : begin + 700_000]))
    assert archive.size_bytes == len(data)
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        incoming = _announced(len(data))
        complete = [incoming.take(message) for message in protocol.Decoder().feed(b"".join(archive.frames()))]
        assert complete == [False, False, True]
        assert incoming.archive == data


def test_a_refused_archive_is_none(tmp_path: Path) -> None:
    """Whatever came before the refusal. A full disk costs the archive, too, and the container's conversation goes on.

    A container that sends more than an archive breaks the protocol: the daemon counts for itself.
    """
    refused, lost, large = (BuildArchive(tmp_path) for _ in range(3))
    refused.take(ArchivePiece(data=b"some"))
    refused.take(ArchivePiece(data=b"", refused="'x' is set-uid"))
    assert (refused.size_bytes, refused.refused) == (0, "'x' is set-uid")
    assert not list(refused.frames())
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, lost._fd)
    os.close(full)
    lost.take(ArchivePiece(data=b"some"))
    assert (lost.size_bytes, "No space left" in (lost.refused or "")) == (0, True)
    piece = ArchivePiece(data=bytes(protocol.ARCHIVE_PIECE_BYTES))
    for _ in range(protocol.MAX_ARCHIVE_BYTES // protocol.ARCHIVE_PIECE_BYTES):
        large.take(piece)
    with pytest.raises(FrameError, match="a build archive of more than"):
        large.take(piece)


@pytest.mark.parametrize("size", [None, -1, True, "1", protocol.MAX_ARCHIVE_BYTES + 1])
def test_a_request_says_how_much_follows_it(size: object) -> None:
    """A number within the cap."""
    with pytest.raises(FrameError, match="archive_bytes"):
        protocol.archive_size({"archive_bytes": size})


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"type": "request"}, "expected 'archive'"),
        ({"type": "archive", "data_b64": "%"}, "not base64"),
        ({"type": "archive"}, "lacks 'data_b64'"),
        (ArchivePiece(data=b"12345").to_message(), "more than the 4 bytes"),
    ],
)
def test_what_is_no_piece_of_the_announced_archive_is_refused(message: dict[str, object], reason: str) -> None:
    """Other frames, other sizes, other encodings."""
    with pytest.raises(FrameError, match=reason):
        _announced(4).take(message)
