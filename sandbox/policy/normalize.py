"""Normal forms of what engines are asked for and answer: two spellings of one setting compare equal. Pure.

Called by `hardening`, which compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sandbox.policy.observed import numbers


def empty_as_none(value: Any) -> Any:  # noqa: ANN401 whatever JSON holds
    """Engines write nothing as null, as an empty string, list or object."""
    return None if value in ("", [], {}) else value


def sorted_set(value: Iterable[Any] | None) -> tuple[Any, ...]:
    """A list whose order and repetitions mean nothing."""
    return tuple(sorted(set(value or ())))


def capabilities(value: Iterable[str] | None) -> tuple[str, ...]:
    """Some engines write CAP_ in front."""
    return sorted_set(name.upper().removeprefix("CAP_") for name in value or ())


def number_list(value: str | None) -> tuple[int, ...]:
    """Processors or memory nodes."""
    return numbers(value or "")


def mount_options(value: Mapping[str, str] | None) -> dict[str, tuple[str, ...]]:
    """Options by mount point, in whatever order."""
    return {target: sorted_set(options.split(",")) for target, options in (value or {}).items()}


def mount_requests(value: Iterable[Mapping[str, Any]] | None) -> tuple[Any, ...]:
    """Binds as they were asked for: target, type, source, read-only, propagation, non-recursive."""
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
    """Security options, the seccomp list as a digest of its content."""
    found = []
    for option in value or ():
        shown = option
        name, _, text = option.replace(":", "=", 1).partition("=")
        if name == "seccomp" and text.startswith("{"):
            # Engines may write the same list otherwise; a digest also fits into an error.
            shown = f"seccomp={digest(json.dumps(json.loads(option.partition('=')[2]), sort_keys=True))}"
        elif name == "no-new-privileges" and text in ("", "true"):
            shown = name
        found.append(shown)
    return sorted_set(found)


def digest(text: str) -> str:
    """The beginning of a hash: enough to tell two texts apart, short enough for an error."""
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
    """Device nodes: outside, inside, permissions."""
    return sorted_set((node["PathOnHost"], node["PathInContainer"], node["CgroupPermissions"]) for node in value or ())


def missing_paths(*wanted: str) -> Callable[[Any], Any]:
    """The normal form of a list that an engine fills itself: which of these it lacks; nothing if it does not say."""

    def normal(value: Any) -> Any:  # noqa: ANN401 whatever JSON holds
        return () if value is None else tuple(path for path in wanted if path not in value)

    return normal
