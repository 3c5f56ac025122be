"""Every test file says which reports it plays."""

from __future__ import annotations

import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def test_reports_are_named_and_played() -> None:
    """Source, kind and what must come out, of each test file but this one."""
    reports = tomllib.loads((HERE / "reports.toml").read_text(encoding="utf-8"))
    assert reports.keys() == {path.stem.removeprefix("test_") for path in HERE.glob("test_*.py")} - {"reports"}
    for entry in (entry for entries in reports.values() for entry in entries):
        assert set(entry) == {"source", "kind", "expected"}, entry
        assert all(entry.values()), entry
