"""Torch's own headers: compilers take precompiled ones where the evaluation environment has them.

`load_inline(use_pch=True)` would put its own beside the headers, where nothing in a container can write, and fail.
Must import nothing but the standard library, and stand alone: `site/sitecustomize.py` loads it from its file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_EXTENSIONS = "torch.utils.cpp_extension"
#: What makes them, and what removes those of an earlier build.
_FUNCTIONS = ("_check_and_build_extension_h_precompiler_headers", "remove_extension_h_precompiler_headers")
#: The command lines of `torch.compile`.
_KERNELS = "torch._inductor.cpp_builder"
#: Its looks at the compiler: which vector instructions it knows.
_LOOKS = "torch._inductor.cpu_vec_isa"


class _Finder:
    """Finds one module of torch's, once, and changes it as soon as it has been imported."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            _PATCHES[fullname](module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


def prepare() -> None:
    """Use the environment's precompiled headers in this process's compilers, and make none."""
    waiting = {finder.name for finder in sys.meta_path if isinstance(finder, _Finder)}
    for name, patch in _PATCHES.items():
        if name in sys.modules:
            patch(sys.modules[name])
        elif name not in waiting:
            sys.meta_path.insert(0, _Finder(name))


def _headers() -> Path | None:
    # `sandbox/image/torch_headers.py` makes them, for one build of torch.
    torch = sys.modules["torch"]
    version = f"torch-{torch.__version__}-{torch.version.git_version}"
    folder = Path(sys.prefix, "share", "kernel-runner", version)
    return folder if os.access(folder, os.X_OK) else None


def _patch_extensions(module: ModuleType) -> None:
    for name in _FUNCTIONS:
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: None)
    if folder := _headers():
        # GCC looks there before it looks into torch's own folders.
        os.environ["CPATH"] = os.pathsep.join(filter(None, (os.environ.get("CPATH"), str(folder))))


def _patch_kernels(module: ModuleType) -> None:
    # These command lines name torch's folders by -I, which GCC takes before CPATH; Python's come first.
    python_folders, folder = getattr(module, "_get_python_include_dirs", None), _headers()
    if python_folders is not None and folder is not None:
        module._get_python_include_dirs = lambda: [str(folder), *python_folders()]  # type: ignore[attr-defined] # noqa: SLF001


def _patch_looks(module: ModuleType) -> None:
    isa, folder = getattr(module, "VecISA", None), _headers()
    if isa is None or folder is None or not (folder / "looks").is_file():
        return
    look, passed = isa.check_build, set((folder / "looks").read_text(encoding="utf-8").split())

    def passes(vec_isa: Any, code: str) -> bool:
        noted = hashlib.sha256(f"{vec_isa.build_arch_flags()}\n{code}".encode()).hexdigest() in passed
        return noted or look(vec_isa, code)

    isa.check_build = passes


_PATCHES: dict[str, Callable[[ModuleType], None]] = {
    _EXTENSIONS: _patch_extensions,
    _KERNELS: _patch_kernels,
    _LOOKS: _patch_looks,
}
