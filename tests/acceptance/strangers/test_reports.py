"""Every folder says which report it is of, and plays it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

FOLDERS = sorted(path for path in Path(__file__).parent.iterdir() if path.is_dir() and path.name != "__pycache__")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"report of {folder.name}")
def test_a_report_is_named_and_played(folder: Path) -> None:
    """Source, kind, what must come out, and a test."""
    report = tomllib.loads((folder / "report.toml").read_text(encoding="utf-8"))
    assert set(report) == {"source", "kind", "expected"}
    assert all(report.values())
    assert list(folder.glob("test_*.py")), folder
