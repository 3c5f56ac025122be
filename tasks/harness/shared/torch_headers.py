"""Torch's own headers, which nothing in a container can write beside.

`load_inline(use_pch=True)` would put precompiled headers there, and fail. Builds go on without them.
Must import nothing but the standard library, and stand alone: `site/sitecustomize.py` loads it from its file.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
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


def leave_alone() -> None:
    """Build no precompiled headers in this process, from now on."""
    if _EXTENSIONS in sys.modules:
        _patch(sys.modules[_EXTENSIONS])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _patch(module: ModuleType) -> None:
    for name in _FUNCTIONS:
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: None)
