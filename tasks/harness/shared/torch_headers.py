"""Torch's own headers: compilers take precompiled ones where the evaluation environment has them.

`load_inline(use_pch=True)` would put its own beside the headers, where nothing in a container can write, and fail.
Must import nothing but the standard library, and stand alone: `site/sitecustomize.py` loads it from its file.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_EXTENSIONS = "torch.utils.cpp_extension"
#: What makes them, and what removes those of an earlier build.
_FUNCTIONS = ("_check_and_build_extension_h_precompiler_headers", "remove_extension_h_precompiler_headers")


class _Finder:
    """Finds torch's module for extensions, once, and changes it as soon as it has been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != _EXTENSIONS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            _patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


def prepare() -> None:
    """Use the environment's precompiled headers in this process's compilers, and make none."""
    if _EXTENSIONS in sys.modules:
        _patch(sys.modules[_EXTENSIONS])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _patch(module: ModuleType) -> None:
    for name in _FUNCTIONS:
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: None)
    # `sandbox/image/torch_headers.py` makes them, for one build of torch.
    torch = sys.modules["torch"]
    version = f"torch-{torch.__version__}-{torch.version.git_version}"
    folder = Path(sys.prefix, "share", "kernel-runner", version)
    if folder.is_dir():
        # GCC looks there before it looks into torch's own folders.
        os.environ["CPATH"] = os.pathsep.join(filter(None, (os.environ.get("CPATH"), str(folder))))
