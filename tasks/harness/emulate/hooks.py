"""Hooks at the import of modules: torch is patched, libraries that compile for devices are refused.

Must import nothing but the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
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
    sys.meta_path.insert(0, _Finder(memory_bytes))
    if _EXTENSIONS in sys.modules:
        _patch_extensions(sys.modules[_EXTENSIONS])


class _Finder(MetaPathFinder):
    def __init__(self, memory_bytes: int | None) -> None:
        self._memory_bytes = memory_bytes
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self._looking:
            return None
        then: Callable[[ModuleType], None] | None = None
        if fullname == "torch" and self._memory_bytes is not None:
            then = self._patch_torch
        elif fullname == _EXTENSIONS:
            then = _patch_extensions
        elif fullname not in _DEVICE_CODE:
            return None
        with self._not_again():
            spec = PathFinder.find_spec(fullname, path, target)
        if fullname in _DEVICE_CODE:
            # A library that is not installed is not found, as usual.
            return None if spec is None else ModuleSpec(fullname, _Refusal())
        if spec is not None and then is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Then(spec.loader, then)
        return spec

    @contextmanager
    def _not_again(self) -> Iterator[None]:
        self._looking = True
        try:
            yield
        finally:
            self._looking = False

    def _patch_torch(self, _: ModuleType) -> None:
        from .install import install

        memory_bytes, self._memory_bytes = self._memory_bytes, None
        if memory_bytes is not None:
            install(memory_bytes)


class _Then(SourceFileLoader):
    """Loads a module and then calls a function with it."""

    def __init__(self, loader: SourceFileLoader, then: Callable[[ModuleType], None]) -> None:
        super().__init__(loader.name, loader.path)
        self._then = then

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        self._then(module)


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
