"""What an export is used for: the shipped programs, the figures, the plots and a publication of a real one."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from runner.base.errors import DataError
from runner.cli import main
from runner.extras.data import manifest
from runner.extras.data import publish as publishing
from runner.extras.data.people import Identity
from runner.extras.data.verify import verify
from tests.fakes import hub as fake
from tests.integration.extras.data.conftest import Oddities, exported, no_progress
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def test_an_export_of_oddities_is_ranked_and_drawn(
    oddities: Oddities, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what ranks; in the folder as well as by the commands."""
    folder = tmp_path / "export"
    exported(database_url, folder, name="autumn")
    program = (
        "from analyze_submissions import load_submissions, top_contestants\n"
        "print(*top_contestants(load_submissions(), runner='B200').submission_id)"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        cwd=folder,
        env={},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == ""
    script = [sys.executable, "-B", "scripts/nvfp4/query_submissions.py", "--id", str(oddities.good)]
    listed = subprocess.run(script, cwd=folder, env={}, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert listed.stdout.endswith("# good\n"), listed.stderr
    capsys.readouterr()
    assert main(["data", "top", str(folder), "--runner", "B200", "--json"]) == 0
    ranking = [line["submission_id"] for line in json.loads(capsys.readouterr().out)]
    assert [str(found) for found in ranking] == done.stdout.split()
    assert ranking[0] == oddities.good
    assert not set(oddities.unusable.values()) & set(ranking)
    report = tmp_path / "report.html"
    assert main(["data", "plot", str(folder), "--html", str(report)]) == 0
    assert report.read_text(encoding="utf-8").count("<h2>") == 2
    assert list(verify(folder, no_progress)) == []


def test_a_terminal_shows_the_progress(oddities: Oddities, database_url: str, tmp_path: Path) -> None:
    """A bar for each stage, on stderr, and nothing of it on stdout."""
    folder = tmp_path / "export"
    rows = exported(database_url, folder).rows
    terminal, other = pty.openpty()
    command = [sys.executable, "-m", "runner.cli", "data", "verify", str(folder)]
    shown = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=other) as process:
        os.close(other)
        # The error is the end of what the command wrote.
        with suppress(OSError):
            while piece := os.read(terminal, 1 << 16):
                shown += piece
        assert process.stdout is not None
        assert process.stdout.read() == b""
    os.close(terminal)
    assert process.returncode == 0
    files = len(manifest.read(folder)["files"])
    for stage, total in (("files", files), ("code", 1), ("flat file", rows)):
        assert re.search(rf"{stage} .*[^\d]{total}/{total}", shown.decode()), shown


def test_a_public_export_is_published_and_a_private_one_is_not(
    oddities: Oddities, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest decides: that of the whole, and that of each leaderboard."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    oddities.filler.board("running", running=True)
    exported(database_url, tmp_path / "private", licence="mit")
    with pytest.raises(DataError, match="private"):
        publishing.checked(tmp_path / "private")
    told = manifest.read(tmp_path / "private")
    manifest.write(tmp_path / "private", {**told, "private": False})
    with pytest.raises(DataError, match=r"open or not public:\n  - running$"):
        publishing.checked(tmp_path / "private")
    exported(
        database_url,
        tmp_path / "public",
        private=False,
        boards=("gemv",),
        licence="cc-by-4.0",
        identity=Identity.PSEUDONYM,
        key=b"k" * 32,
    )
    folder = publishing.checked(tmp_path / "public")
    with fake.hub() as hub:
        api = HfApi(endpoint=hub.endpoint, token=fake.TOKEN)
        publishing.publish(folder, publishing.plan(folder, "tester/x", api=api), api=api)
        files = {path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*") if path.is_file()}
        assert set(hub.repositories["tester/x"].files) == files
