"""Hooks at the import of modules: torch is patched, libraries that compile for devices are refused.

Must import nothing but the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from .errors import NoDeviceCode, needs_device

#: Top-level modules that need a device.
_DEVICE_CODE = ("triton", "cutlass", "cuda", "cupy", "pycuda", "tilelang")
_EXTENSIONS = "torch.utils.cpp_extension"
_DEVICE_SOURCES = (".cu", ".cuh", ".hip")


def watch_imports(memory_bytes: int | None) -> None:
    """Watch all imports from now on. `memory_bytes`: patch torch as soon as it is imported; None: it is patched."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    patches: dict[str, Callable[[ModuleType], None]] = {_EXTENSIONS: _patch_extensions}
    if memory_bytes is not None:
        patches["torch"] = lambda _: _patch_torch(memory_bytes)
    sys.meta_path.insert(0, _Finder(patches))
    if _EXTENSIONS in sys.modules:
        _patch_extensions(sys.modules[_EXTENSIONS])


def _patch_torch(memory_bytes: int) -> None:
    from .install import install

    install(memory_bytes)


class _Finder(MetaPathFinder):
    """Has modules patched when they have been imported, and refuses libraries that compile for devices."""

    def __init__(self, patches: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = self._patches.get(fullname)
        if patch is None and fullname not in _DEVICE_CODE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        # A library that is not installed is not found, as usual.
        if spec is None or spec.loader is None:
            return spec
        if patch is None:
            return ModuleSpec(fullname, _Refusal())
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]  # of this one module
        return spec


class _Refusal(Loader):
    """Refuses a library that was found, with the reason."""

    def exec_module(self, module: ModuleType) -> None:
        raise NoDeviceCode(
            f"{module.__name__} compiles for devices; the CUDA device is emulated on the CPU, without device code "
            "(run this on a GPU type)",
            name=module.__name__,
        )


def _patch_extensions(module: ModuleType) -> None:
    """C++ extensions are built as usual. Those with device sources are refused before a compiler is looked for."""
    load, load_inline = module.load, module.load_inline

    def checked_load(name: str, sources: str | Sequence[str], *args: object, **kwargs: object) -> object:
        given = [sources] if isinstance(sources, str) else list(sources)
        if kwargs.get("with_cuda") or any(str(source).endswith(_DEVICE_SOURCES) for source in given):
            raise needs_device(f"building the CUDA extension {name!r}")
        return load(name, sources, *args, **kwargs)

    def checked_load_inline(
        name: str, cpp_sources: object, cuda_sources: object = None, *args: object, **kwargs: object
    ) -> object:
        if cuda_sources or kwargs.get("with_cuda"):
            raise needs_device(f"building the CUDA extension {name!r}")
        return load_inline(name, cpp_sources, cuda_sources, *args, **kwargs)

    def no_extension(name: str, *_: object, **__: object) -> object:
        raise needs_device(f"building the CUDA extension {name!r}")

    module.load = checked_load  # type: ignore[attr-defined]  # a module of torch's
    module.load_inline = checked_load_inline  # type: ignore[attr-defined]  # same
    module.CUDAExtension = no_extension  # type: ignore[attr-defined]  # same
