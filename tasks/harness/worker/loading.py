"""Imports a submission."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tasks.harness.shared import torch_headers


def import_submission(directory: Path, name: str) -> ModuleType | None:
    """The submission's module; None if that is no Python file. Its exceptions pass through."""
    torch_headers.leave_alone()
    sys.path.insert(0, str(directory))
    specification = importlib.util.spec_from_file_location("submission", directory / name)
    if specification is None or specification.loader is None:
        return None
    module = importlib.util.module_from_spec(specification)
    sys.modules["submission"] = module
    specification.loader.exec_module(module)
    return module
