"""The registry of GPU types: reads the built-in files and the operator's overlay, validates them, answers by name.

Owns the file format of `*.toml` GPU types. Must not look at devices or the environment: `runner.devices` matches the
devices of a host with these types.

One file describes one type. A file of the overlay replaces the type of the same name or adds one. With
`extends = "H100"` it starts from that type and changes only the keys it names. In an overlay a file may extend the type
it replaces.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from runner.base.errors import ConfigError, NotFoundError
from runner.base.expectations import expectation
from runner.base.gpu_types.model import CLOCK_REASONS, GpuType, Vendor
from runner.base.marks import ENCODING, visible

BUILTIN: Final = Path(__file__).parent

#: The keys of a file, once `extends` was applied, are the fields of `GpuType`.
FILE: Final = TypeAdapter(GpuType)
_KEYS: Final = tuple(field.name for field in fields(GpuType))


@dataclass(frozen=True, kw_only=True)
class _File:
    """One parsed file, before `extends` is applied."""

    path: Path
    name: str
    extends: str | None
    keys: Mapping[str, Any]


class Registry:
    """The GPU types this installation knows. Immutable."""

    def __init__(self, types: Iterable[GpuType], *, origin: Mapping[str, Path] | None = None) -> None:
        self._types: Final = {entry.name: entry for entry in sorted(types, key=lambda entry: entry.name)}
        self._origin: Final = dict(origin or {})
        self._by_alias: Final = {alias: entry for entry in self._types.values() for alias in entry.aliases}

    @classmethod
    def load(cls, overlay: Path | None = None, *, files: Iterable[Path] = ()) -> Registry:
        """Read the built-in types and, if it exists, the overlay directory.

        Args:
            overlay: the operator's directory.
            files: further files, as if they lay in it; one of a type that it has replaces that.

        Raises:
            ConfigError: the overlay cannot be read; or a file does not parse, has an unknown or invalid key, extends
                an unknown type, or takes a name or alias that is in use.
        """
        builtin, built = _shipped()
        types = dict(built)
        origin = {file.name: file.path for file in builtin.values()}
        changed = _read_directory(overlay) if overlay is not None and _is_there(overlay) else {}
        changed |= _by_name(files)
        for file in changed.values():
            types[file.name] = _build(file, base={**builtin, **changed}, chain=(), shadowed=builtin)
            origin[file.name] = file.path
        _refuse_clashes(types.values(), origin)
        return cls(types.values(), origin=origin)

    def get(self, name: str) -> GpuType:
        """The type of that name or alias.

        Raises:
            NotFoundError: there is none; names the nearest.
        """
        entry = self._types.get(name) or self._by_alias.get(name)
        if entry is not None:
            return entry
        names = [*self._types, *self._by_alias]
        near = get_close_matches(name.lower(), [each.lower() for each in names], n=1, cutoff=0.5)
        hint = next((f"; did you mean {each!r}?" for each in names if near and each.lower() == near[0]), "")
        what = f"GPU type {name!r} is not known" if name.strip() else "no GPU type is named"
        raise NotFoundError(f"{what}, expected one of {', '.join(self._types)}{hint}")

    def origin(self, name: str) -> Path | None:
        """The file that describes the type of that name; None if it was not read from one."""
        return self._origin.get(name)

    def all(self) -> tuple[GpuType, ...]:
        """Every type, by name."""
        return tuple(self._types.values())

    def matching(
        self, vendor: Vendor, device_name: str, *, pci_id: str | None = None, partition: str | None = None
    ) -> tuple[GpuType, ...]:
        """The types, detected or not, that a vendor's device is one of.

        Those one of whose `device_names` matches its whole name; if there is none, those with its PCI id. A part of a
        divided device is of a type only if `partition` says so, and a whole one only if it says nothing.
        """
        possible = [
            entry for entry in self._types.values() if entry.vendor is vendor and _is_partition(entry, partition)
        ]
        named = [
            entry for entry in possible if any(re.fullmatch(pattern, device_name) for pattern in entry.device_names)
        ]
        return tuple(named or (entry for entry in possible if pci_id is not None and pci_id in entry.pci_ids))


def _is_partition(entry: GpuType, partition: str | None) -> bool:
    if entry.partition is None or partition is None:
        return entry.partition is partition
    return re.fullmatch(entry.partition, partition) is not None


@cache
def _shipped() -> tuple[Mapping[str, _File], Mapping[str, GpuType]]:
    """The built-in files and their types. They are the release's, so a process reads them once."""
    files = _read_directory(BUILTIN)
    return files, {file.name: _build(file, base=files, chain=()) for file in files.values()}


def _is_there(overlay: Path) -> bool:
    try:
        # A glob passes over what cannot be read.
        os.listdir(overlay)  # noqa: PTH208
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not overlay.is_symlink():
            return False
        raise ConfigError(f"gpus_dir={str(overlay)!r} cannot be read: {error.strerror}") from error
    return True


def _read_directory(directory: Path) -> dict[str, _File]:
    return _by_name(visible(directory, ".toml"))


def _by_name(paths: Iterable[Path]) -> dict[str, _File]:
    files: dict[str, _File] = {}
    for path in paths:
        file = _read(path)
        if file.name in files:
            raise ConfigError(
                f"GPU type {file.name!r} is described twice: {files[file.name].path} and {path}; delete one of them"
            )
        files[file.name] = file
    return files


def _read(path: Path) -> _File:
    try:
        keys = tomllib.loads(path.read_text(encoding=ENCODING))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    valid = [*_KEYS, "extends"]
    for key in keys:
        if key not in valid:
            near = get_close_matches(key, valid, n=1, cutoff=0)
            raise ConfigError(f"{path}: key {key!r} is not known, the nearest valid key is {near[0]!r}")
    name, extends = keys.get("name"), keys.pop("extends", None)
    if not isinstance(name, str):
        raise ConfigError(f"{path}: name={name!r}, expected a string such as {path.stem!r}")
    if extends is not None and not isinstance(extends, str):
        raise ConfigError(f"{path}: extends={extends!r}, expected the name of a GPU type")
    return _File(path=path, name=name, extends=extends, keys=keys)


def _build(
    file: _File, *, base: Mapping[str, _File], chain: tuple[str, ...], shadowed: Mapping[str, _File] | None = None
) -> GpuType:
    """The type of one file. `base` holds what it may extend, `shadowed` what it replaces and may extend by its name."""
    keys = _with_products(_resolve(file, base=base, chain=chain, shadowed=shadowed or {}))
    try:
        # Through JSON: only there does strict validation take a list for a tuple and a string for an enum.
        entry = FILE.validate_json(json.dumps(keys, default=str), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        value = "nothing" if first["type"] == "missing" else f"{first['input']!r}"
        raise ConfigError(f"{file.path}: {key}: found {value}, expected: {expectation(first)}") from error
    if entry.emulate_cuda and entry.vendor is not Vendor.NONE:
        raise ConfigError(
            f'{file.path}: emulate_cuda: found true with vendor {entry.vendor.value!r}, expected vendor "none": a CUDA '
            "device is emulated on processor cores"
        )
    if entry.vendor is Vendor.NVIDIA and entry.partition is not None and entry.count > 1:
        # NVIDIA's MIG User Guide, CUDA device enumeration.
        raise ConfigError(
            f"{file.path}: count: found {entry.count} with partition {entry.partition!r}, expected 1: a CUDA process "
            "uses one MIG instance"
        )
    _refuse_clocks(entry, file.path, named="set_aside" in keys.get("clocks", {}))
    return entry


def _refuse_clocks(entry: GpuType, path: Path, *, named: bool) -> None:
    """Refuse clocks that no device of the vendor can be locked at, and those that nothing would look at.

    `named`: the file names the reasons that set calls aside.

    Raises:
        ConfigError: with file, key, what was found and what is expected.
    """
    clocks, vendor = entry.clocks, entry.vendor.value
    reasons = CLOCK_REASONS[entry.vendor]
    for name in clocks.set_aside if named else ():
        if name not in reasons:
            expected = (
                f"reasons that its library reports: {', '.join(reasons)}" if reasons else "none: it has no devices"
            )
            raise ConfigError(f"{path}: clocks.set_aside: found {name!r} with vendor {vendor!r}, expected {expected}")
    for key, mhz in (("sm_mhz", clocks.sm_mhz), ("memory_mhz", clocks.memory_mhz)):
        if mhz is None:
            continue
        where = f"{path}: clocks.{key}: found {mhz}"
        if entry.vendor is Vendor.NONE:
            raise ConfigError(f"{where} with vendor {vendor!r}, expected no clock: it has no devices to lock")
        if entry.vendor is Vendor.AMD and key == "memory_mhz":
            raise ConfigError(
                f"{where} with vendor {vendor!r}, expected no memory clock: AMD SMI bounds the clock of the compute "
                "units alone; use sm_mhz"
            )
        if entry.sample_every_s is None:
            raise ConfigError(
                f"{where} without sample_every_s, expected both: nothing would look whether the devices keep to it; "
                "set sample_every_s = 0.1"
            )


def _resolve(
    file: _File, *, base: Mapping[str, _File], chain: tuple[str, ...], shadowed: Mapping[str, _File]
) -> dict[str, Any]:
    """The keys of a file on top of those it extends; tables are merged, every other key replaced."""
    if file.extends is None:
        return dict(file.keys)
    if file.name in chain:
        raise ConfigError(f"{file.path}: extends runs in a circle: {' -> '.join((*chain, file.name))}")
    itself = file.extends == file.name
    parent = (shadowed if itself else base).get(file.extends)
    if parent is None or parent is file:
        near = get_close_matches(file.extends, sorted(set(base) - {file.name}), n=1, cutoff=0)
        hint = f"; the nearest is {near[0]!r}" if near else ""
        raise ConfigError(f"{file.path}: extends={file.extends!r}, expected the name of another GPU type{hint}")
    inherited = _resolve(parent, base=base, chain=() if itself else (*chain, file.name), shadowed=shadowed)
    # Two types of one alias would clash, and a base's alias means the base. What ran on a base never ran on this type.
    if not itself:
        inherited.pop("aliases", None)
        inherited.pop("hardware_runs", None)
    return _merged(inherited, file.keys)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` on top, tables within tables too."""
    return {
        **base,
        **{
            key: _merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
            for key, value in changes.items()
        },
    }


def _with_products(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys with every product's figures on top of the type's; what has no such form is left for validation."""
    device, products = keys.get("device", {}), keys.get("products", [])
    if not isinstance(device, dict) or not isinstance(products, list):
        return keys
    filled = [
        item | {"device": _merged(device, item["device"])}
        if isinstance(item, dict) and isinstance(item.get("device"), dict)
        else item
        for item in products
    ]
    return keys | {"products": filled}


def _refuse_clashes(types: Iterable[GpuType], origin: Mapping[str, Path]) -> None:
    taken: dict[str, str] = {}
    entries = list(types)
    for entry in entries:
        taken[entry.name.lower()] = entry.name
    if len(taken) != len(entries):
        names = sorted(entry.name for entry in entries)
        pairs = [name for name in names if taken[name.lower()] != name]
        raise ConfigError(f"GPU type {pairs[0]!r} differs from {taken[pairs[0].lower()]!r} by case only; rename one")
    for entry in entries:
        for alias in entry.aliases:
            owner = taken.setdefault(alias.lower(), entry.name)
            if owner != entry.name or alias.lower() == entry.name.lower():
                raise ConfigError(
                    f"{origin[entry.name]}: alias {alias!r} of GPU type {entry.name!r} already names {owner!r}; "
                    "names and aliases are unique whatever their case"
                )
