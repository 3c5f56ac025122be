"""Run before anything else by interpreters that have this folder on their path: the processes of a task's program."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

_HARNESS = Path(__file__).resolve().parents[1]


def _load(name: str, path: Path) -> ModuleType:
    # By its file: a program's own folder may well hold something called `tasks`.
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)] if path.name == "__init__.py" else None
    )
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_load("_kernel_runner_torch_headers", _HARNESS / "shared" / "torch_headers.py").prepare()
if os.environ.get("KR_EMULATE_CUDA"):
    _load("_kernel_runner_emulate", _HARNESS / "emulate" / "__init__.py").install_with_torch()
