"""Brings settings into one form, so that two spellings of the same setting compare equal. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sandbox.policy.observed import numbers


def empty_as_none(value: Any) -> Any:  # noqa: ANN401 whatever JSON holds
    """Engines write an empty value as null, as an empty string, as a list or as an object."""
    return None if value in ("", [], {}) else value


def sorted_set(value: Iterable[Any] | None) -> tuple[Any, ...]:
    """A list in which order and repetition have no meaning."""
    return tuple(sorted(set(value or ())))


def capabilities(value: Iterable[str] | None) -> tuple[str, ...]:
    """Some engines write the prefix CAP_."""
    return sorted_set(name.upper().removeprefix("CAP_") for name in value or ())


def number_list(value: str | None) -> tuple[int, ...]:
    """A list of CPUs or memory nodes."""
    return numbers(value or "")


def mount_options(value: Mapping[str, str] | None) -> dict[str, tuple[str, ...]]:
    """Options by mount point; their order has no meaning."""
    return {target: sorted_set(options.split(",")) for target, options in (value or {}).items()}


def mount_requests(value: Iterable[Mapping[str, Any]] | None) -> tuple[Any, ...]:
    """Requested binds: target, type, source, read-only, propagation, non-recursive."""
    return sorted_set(
        (
            mount.get("Target"),
            mount.get("Type"),
            mount.get("Source"),
            bool(mount.get("ReadOnly")),
            (mount.get("BindOptions") or {}).get("Propagation"),
            bool((mount.get("BindOptions") or {}).get("NonRecursive")),
        )
        for mount in value or ()
    )


def security_options(value: Iterable[str] | None) -> tuple[str, ...]:
    """Security options. The seccomp list is replaced by a digest of its content."""
    options = []
    for option in value or ():
        shown = option
        name, _, text = option.replace(":", "=", 1).partition("=")
        if name == "seccomp" and text.startswith("{"):
            # Engines may format the list differently. A digest also fits into an error message.
            shown = f"seccomp={digest(json.dumps(json.loads(option.partition('=')[2]), sort_keys=True))}"
        elif name == "no-new-privileges" and text in ("", "true"):
            shown = name
        options.append(shown)
    return sorted_set(options)


def digest(text: str) -> str:
    """The first part of a hash: long enough to tell two texts apart, short enough for an error message."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def ulimits(value: Iterable[Mapping[str, Any]] | None) -> tuple[Any, ...]:
    """Name, soft and hard limit."""
    return sorted_set((limit["Name"], limit["Soft"], limit["Hard"]) for limit in value or ())


def device_requests(value: Iterable[Mapping[str, Any]] | None) -> tuple[Any, ...]:
    """Device requests: driver, ids, capabilities, count (engines fill in 0)."""
    return tuple(
        (
            request.get("Driver"),
            sorted_set(request.get("DeviceIDs")),
            tuple(sorted_set(some) for some in request.get("Capabilities") or ()),
            request.get("Count") or 0,
        )
        for request in value or ()
    )


def device_nodes(value: Iterable[Mapping[str, str]] | None) -> tuple[Any, ...]:
    """Device nodes: path outside, path inside, permissions."""
    return sorted_set((node["PathOnHost"], node["PathInContainer"], node["CgroupPermissions"]) for node in value or ())


def missing_paths(*paths: str) -> Callable[[Any], Any]:
    """A form for lists that the engine fills itself: the wanted paths that are missing; empty if it reports no list."""

    def normal(value: Any) -> Any:  # noqa: ANN401 whatever JSON holds
        return () if value is None else tuple(path for path in paths if path not in value)

    return normal
