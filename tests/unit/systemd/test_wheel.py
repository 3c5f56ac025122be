"""What setuptools puts into the wheel, and so into the Debian package."""

from __future__ import annotations

from pathlib import Path

import pytest
from setuptools import Distribution  # type: ignore[import-untyped]  # it has no types

from runner.evaluation.kinds import guests

ROOT = Path(__file__).resolve().parents[3]


def test_the_wheel_has_every_file_of_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code, SQL, pages, recipes, tasks, and what guests have inside containers; of documents only those of tasks."""
    monkeypatch.chdir(ROOT)
    distribution = Distribution({"script_name": "setup.py"})
    distribution.parse_config_files(["pyproject.toml"])
    # Else it reads, and writes, lists of what an earlier build has packed.
    distribution.include_package_data = False
    command = distribution.get_command_obj("build_py")
    command.ensure_finalized()
    packed = {Path(path).relative_to(command.build_lib) for path in command.get_outputs()}
    files = {
        path.relative_to(ROOT)
        for folder in ("runner", "sandbox", "tasks")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(place) for place, path in guests.inside().items() if path.is_file()} <= files
    assert {path for path in files - packed if path.name != "README.md"} == set()
