"""The identity of the process that made something, and whether that process has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.host import process_identity
from sandbox.host.process_identity import identity, is_gone
from sandbox.host.stage import stage


def _of_a_dead_process() -> str:
    """The identity of a process that has ended."""
    code = "from sandbox.host.process_identity import identity; print(identity())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    return done.stdout.strip()


def test_a_living_process_is_not_gone_and_a_dead_one_is() -> None:
    """By number and start time: a number is used again some day. An earlier boot is gone, too.

    Process numbers of a daemon in another container mean nothing here; what is no identity means nothing either.
    """
    mine = identity()
    boot, namespace, pid, started = mine.split(".")
    assert pid == str(os.getpid())
    assert not is_gone(mine)
    assert is_gone(_of_a_dead_process())
    assert is_gone(f"{boot}.{namespace}.{pid}.{int(started) + 1}")
    assert is_gone(f"{'0' * 32}.{namespace}.{pid}.{started}")
    for unknown in (f"{boot}.1.{pid}.{int(started) + 1}", "", "something.else"):
        assert not is_gone(unknown)


def test_a_process_that_proc_hides_is_not_taken_for_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hardened service does not see other users' processes, but can tell that there is one of a number."""
    mine, dead = identity(), _of_a_dead_process()
    namespace = process_identity._namespace()
    monkeypatch.setattr(process_identity, "_namespace", lambda: namespace)
    monkeypatch.setattr(process_identity, "PROC", tmp_path)
    assert not is_gone(mine)
    assert is_gone(dead)


def test_staging_clears_away_what_a_killed_process_left(tmp_path: Path) -> None:
    """Its unfinished directory goes, a living process's stays."""
    dead, living = (tmp_path / f".stage-{maker}-abc" for maker in (_of_a_dead_process(), identity()))
    for scratch in (dead, living):
        (scratch / "sandbox").mkdir(parents=True)
    stage(tmp_path, {})
    assert not dead.exists()
    assert living.exists()
