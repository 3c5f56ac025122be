"""Every folder says which report it is of, and plays it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

#: Not those of which only caches are left.
FOLDERS = sorted({path.parent for path in Path(__file__).parent.glob("[!_]*/*") if path.is_file()})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"report of {folder.name}")
def test_a_report_is_named_and_played(folder: Path) -> None:
    """Source, kind, what must come out, and a test."""
    report = tomllib.loads((folder / "report.toml").read_text(encoding="utf-8"))
    assert set(report) == {"source", "kind", "expected"}
    assert all(report.values())
    assert list(folder.glob("test_*.py")), folder
