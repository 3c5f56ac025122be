"""`artifact`: where a file cannot be written."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.base.model import Artifact
from runner.cli import main
from runner.cli.app import ExitCode, Session

DATA = b"x" * 200_000


@contextmanager
def full_disk() -> Iterator[None]:
    """RLIMIT_FSIZE stands in for one: a write that is cut short, then an error, from the kernel itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(DATA) // 2, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and a database with one artifact."""
    found = Artifact(name="a.trace.json.gz", media_type="application/gzip", data=DATA)
    monkeypatch.setattr(Session, "store", lambda _: nullcontext(SimpleNamespace(artifact=lambda _: found)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_full_disk_keeps_no_part_of_the_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next try would take it for an existing file."""
    with full_disk():
        assert main(["artifact", "3"]) == ExitCode.USAGE
    assert "a.trace.json.gz cannot be written: File too large; name another" in capsys.readouterr().err
    assert list(here.iterdir()) == []
    assert main(["artifact", "3"]) == ExitCode.OK
    assert (here / "a.trace.json.gz").read_bytes() == DATA
