"""The tests' own PostgreSQL: what a killed run leaves behind does not stay."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.postgres import _mark_as_used


def test_what_a_killed_run_has_left_is_removed_and_what_is_used_stays(tmp_path: Path) -> None:
    """A directory is used while the process lives that has marked it."""
    names = ("killed", "running", "new")
    killed, running, new = (tmp_path / f"kernel-runner-test-{name}" for name in names)
    for directory in (killed, running, new):
        directory.mkdir()
    _mark_as_used(killed).close()
    with _mark_as_used(running), _mark_as_used(new):
        assert sorted(tmp_path.iterdir()) == [new, running]
