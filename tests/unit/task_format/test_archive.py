"""Loading a .zip: the same as the folder, and nothing that only an archive can do to us."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.base.errors import TaskError
from runner.task_format import load, load_folder
from runner.task_format.trees import MAX_ARCHIVE_BYTES, MAX_ENTRIES, MAX_UNPACKED_BYTES
from tests.unit.task_format.samples import TASK, changed, write


def pack(folder: Path, archive: Path, *, prefix: str = "", parent: bool = True) -> Path:
    """Zip a sample folder, with `eval.py` of its parent, below `prefix`."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, prefix + path.relative_to(folder.parent).as_posix())
        if parent:
            file.write(folder.parent / "eval.py", f"{prefix}eval.py")
    return archive


@pytest.mark.parametrize("prefix", ["", "repository/"])
def test_an_archive_reads_like_its_folder(tmp_path: Path, prefix: str) -> None:
    """With or without a folder around it, the archive holds the same task."""
    folder = write(tmp_path, changed(templates={"Python": "t.py"}), files={"t.py": "t\n"}, extra={"flops": "size"})
    assert load(pack(folder, tmp_path / "x.zip", prefix=prefix)) == load_folder(folder)


def test_a_task_at_the_top_is_named_after_the_archive(tmp_path: Path) -> None:
    """A flat archive has no folder to take the name from."""
    with zipfile.ZipFile(tmp_path / "sorter.zip", "w") as file:
        file.writestr("task.yml", str(changed(files=[*TASK["files"][:2], {"name": "eval.py", "source": "eval.py"}])))
        file.writestr("reference.py", "r")
        file.writestr("eval.py", "e")
    folder = load(tmp_path / "sorter.zip")
    assert (folder.name, folder.task.files["eval.py"]) == ("sorter", "e")


def refusal(path: Path) -> str:
    """The message with which the archive is refused."""
    with pytest.raises(TaskError) as caught:
        load(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_a_source_or_member_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The archive's top is the limit; the message names the member and the archive."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("task.yml", str(dict(TASK)))
        file.writestr("reference.py", "r")
    assert refusal(tmp_path / "x.zip").startswith(
        "x.zip/task.yml: files[2].source: found the source '../eval.py', which leaves the task's repository, expected "
        "a path inside it (that is the archive, "
    )
    archive = pack(write(tmp_path), tmp_path / "x.zip", parent=False)
    assert refusal(archive) == ("x.zip/adder/task.yml: files[2].source: found no file 'eval.py' in x.zip, expected one")


@pytest.mark.parametrize(("names", "count"), [((), 0), (("a/task.yml", "b/task.yml"), 2)])
def test_other_than_one_task_is_refused(tmp_path: Path, names: tuple[str, ...], count: int) -> None:
    """Which task is meant must be clear."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        for name in names:
            file.writestr(name, "a: 1")
    listed = f" ({', '.join(names)})" if names else ""
    assert refusal(tmp_path / "x.zip") == f"x.zip: found {count} files named task.yml{listed}, expected exactly one"


def test_a_file_that_is_no_archive_or_damaged_is_refused(tmp_path: Path) -> None:
    """Neither is one that does not exist read; a wrong checksum is reported as such, not as the text that was read."""
    (tmp_path / "x.zip").write_text("no archive")
    assert refusal(tmp_path / "x.zip").startswith("x.zip: found no valid .zip (")
    assert refusal(tmp_path / "y.zip") == "y.zip: found an unreadable file (No such file or directory), expected a .zip"
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("task.yml", "lang: py  # SENTINEL")
    data = (tmp_path / "x.zip").read_bytes().replace(b"SENTINEL", b"SENTINEM", 1)
    (tmp_path / "x.zip").write_bytes(data)
    assert refusal(tmp_path / "x.zip").startswith(
        "x.zip/task.yml: found x.zip/task.yml damaged or packed in an unknown"
    )


def _entry(name: str, *, mode: int = 0o100644, data: str = "x") -> Callable[[zipfile.ZipFile], None]:
    def add(file: zipfile.ZipFile) -> None:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        file.writestr(entry, data)

    return add


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (_entry("../x"), "entry '../x': found a path with an empty part, '.' or '..'"),
        (_entry("a//x"), "entry 'a//x': found a path with an empty part, '.' or '..'"),
        (_entry("/etc/x"), "entry '/etc/x': found an absolute or foreign path"),
        (_entry("a\\..\\x"), "entry 'a\\\\..\\\\x': found an absolute or foreign path"),
        (_entry("link", mode=stat.S_IFLNK | 0o777, data="/etc/passwd"), "entry 'link': found a link or special file"),
        (_entry("pipe", mode=stat.S_IFIFO | 0o644), "entry 'pipe': found a link or special file"),
    ],
)
def test_an_entry_that_escapes_is_refused(tmp_path: Path, add: Callable[[zipfile.ZipFile], None], message: str) -> None:
    """A single bad entry spoils the archive, whether the task names it or not."""
    archive = pack(write(tmp_path), tmp_path / "x.zip")
    with zipfile.ZipFile(archive, "a") as file:
        add(file)
    assert refusal(archive) == f"x.zip: {message}, expected a plain file inside the archive"


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")  # zipfile warns the writer; the reader is the subject
def test_a_repeated_entry_is_refused(tmp_path: Path) -> None:
    """Which of two entries of one name counts depends on the reader."""
    archive = pack(write(tmp_path), tmp_path / "x.zip")
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("adder/reference.py", "another")
    assert refusal(archive) == (
        "x.zip: entry 'adder/reference.py': found a second entry of this name, expected a plain file inside the archive"
    )


@pytest.mark.parametrize(
    ("size_bytes", "beginning", "end"),
    [
        (1 << 20, "x.zip: entry 'a': found ", "bytes that unpack to 1048576"),
        (MAX_UNPACKED_BYTES + 1, "x.zip: found ", f"bytes once unpacked, expected at most {MAX_UNPACKED_BYTES}"),
    ],
)
def test_a_bomb_is_refused_unopened(tmp_path: Path, size_bytes: int, beginning: str, end: str) -> None:
    """For a member's ratio, and for the sum of the sizes that the directory declares."""
    archive = pack(write(tmp_path), tmp_path / "x.zip")
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a", b"\0" * size_bytes)
    text = refusal(archive)
    assert text.startswith(beginning)
    assert end in text


def test_an_archive_has_a_size_and_a_number_of_entries(tmp_path: Path) -> None:
    """More is refused."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        for index in range(MAX_ENTRIES + 1):
            file.writestr(str(index), "")
    assert refusal(tmp_path / "x.zip") == f"x.zip: found {MAX_ENTRIES + 1} entries, expected at most {MAX_ENTRIES}"
    os.truncate(tmp_path / "x.zip", size := MAX_ARCHIVE_BYTES + 1)
    assert refusal(tmp_path / "x.zip") == f"x.zip: found {size} bytes, expected a .zip of at most {size - 1}"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, None])
def test_a_member_that_is_packed_otherwise_is_refused(tmp_path: Path, method: int | None) -> None:
    """What other methods do with damaged bytes, and with how much memory, is their own. No password can be typed."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w", method or zipfile.ZIP_DEFLATED) as file:
        file.writestr("task.yml", "lang: py")
    if method is None:
        data = bytearray((tmp_path / "x.zip").read_bytes())
        # Bit 0 of the flags, 8 bytes into every record of the central directory.
        data[data.find(b"PK\x01\x02") + 8] |= 1
        (tmp_path / "x.zip").write_bytes(bytes(data))
    assert "entry 'task.yml': found an encrypted file, or one packed otherwise than by deflate" in refusal(
        tmp_path / "x.zip"
    )


def test_a_member_over_the_cap_is_refused(tmp_path: Path) -> None:
    """The cap of a file holds inside an archive too."""
    folder = write(tmp_path, changed(files=[*TASK["files"], {"name": "a", "source": "big"}]))
    archive = pack(folder, tmp_path / "x.zip")
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("adder/big", "x" * ((1 << 20) + 1))
    assert refusal(archive) == (
        "x.zip/adder/task.yml: files[3].source: found x.zip/adder/big with more than 1048576 bytes, "
        "expected at most that"
    )
