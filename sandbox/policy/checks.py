"""Checks of single settings: what the kernel or init reports, and what it ought to be. Pure.

`sandbox.policy.hardening` puts them into its table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox.policy import normalize
from sandbox.policy.observed import NOT_OBSERVED, Observed, Source
from sandbox.spec import DeviceDriver, SandboxSpec

#: Runtimes that filter system calls and keep limits outside the container, where it cannot observe them.
GVISOR = frozenset({"runsc"})
PAGE_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Check:
    """One comparison: what a source reports of a setting, and what it ought to report."""

    source: Source
    #: The compared setting, as words that "is" can follow.
    what: str
    expected: Callable[[SandboxSpec], Any]
    #: Returns NOT_OBSERVED if the source does not report it.
    actual: Callable[[SandboxSpec, Observed], Any]
    #: Runtimes under which the source reports something else by design.
    except_under: frozenset[str] = frozenset()


def engine_value(observed: Observed, key: str) -> Any:  # noqa: ANN401 whatever JSON holds
    """What the engine reports of a setting, by its path in the create request; None if it reports nothing."""
    place: Any = observed.engine if key.startswith("HostConfig.") else observed.engine.get("Config") or {}
    for part in key.split("."):
        place = (place or {}).get(part)
    return place


def kernel_check(
    what: str, name: str, expected: Callable[[SandboxSpec], Any], *, except_under: frozenset[str] = frozenset()
) -> Check:
    """A check of what the kernel reports: a field of KernelView."""
    return Check(
        source=Source.KERNEL,
        what=what,
        expected=expected,
        actual=lambda _, observed: getattr(observed.kernel, name),
        except_under=except_under,
    )


def inside_check(
    what: str,
    expected: Callable[[SandboxSpec], Any],
    actual: Callable[[SandboxSpec, Observed], Any],
    *,
    except_under: frozenset[str] = frozenset(),
) -> Check:
    """A check of what init reports from inside."""
    return Check(source=Source.INSIDE, what=what, expected=expected, actual=actual, except_under=except_under)


def own_namespace_check(name: str) -> Check:
    """A check, by the kernel, that a namespace is not the one of this process."""

    def is_own(_: SandboxSpec, observed: Observed) -> Any:  # noqa: ANN401 a truth value or NOT_OBSERVED
        shared = observed.kernel.shared_namespaces
        return NOT_OBSERVED if shared is NOT_OBSERVED else name not in shared

    # The process that the host observes under gVisor stands for a kernel of its own. It shares unused namespaces.
    return Check(
        source=Source.KERNEL,
        what=f"having its own {name} namespace",
        expected=lambda _: True,
        actual=is_own,
        except_under=GVISOR,
    )


def reported_mounts(_: SandboxSpec, observed: Observed) -> tuple[Any, ...]:
    """What the engine reports as mounted: destination, type, source, writable, propagation."""
    return normalize.sorted_set(
        (mount.get("Destination"), mount.get("Type"), mount.get("Source"), bool(mount.get("RW")), mount["Propagation"])
        for mount in observed.engine.get("Mounts") or ()
        if mount.get("Type") != "tmpfs"
    )


def options_of(observed: Observed, target: str) -> frozenset[str]:
    """The options of a mount."""
    return frozenset(observed.mounts.get(target, {}).get("options", "").split(","))


def unprotected_binds(spec: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Binds that are missing or writable."""
    return tuple(bind.target for bind in spec.binds if "ro" not in options_of(observed, bind.target))


#: Writable mounts of these types belong to the kernel. Their files have owners and modes of their own.
_KERNEL_TYPES = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue"})
#: Runtimes mount memory file systems and device files below these directories themselves.
_RUNTIME_PLACES = ("/proc/", "/sys/", "/dev/")


def unexpected_writable_mounts(spec: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Writable mounts that the spec does not have."""
    asked = {fs.target for fs in spec.tmpfs}
    return normalize.sorted_set(
        mount["target"]
        for mount in observed.inside["mounts"]
        if "rw" in mount["options"].split(",")
        and mount["target"] not in asked
        and mount["type"] not in _KERNEL_TYPES
        and not (mount["type"] in ("tmpfs", "devtmpfs") and f"{mount['target']}/".startswith(_RUNTIME_PLACES))
    )


def tmpfs_owners(spec: SandboxSpec, observed: Observed) -> dict[str, Any]:
    """Type, owner, group and mode of the spec's memory file systems."""
    # Some runtimes use the mode of the directory below instead of the requested one.
    by_target = {fs.target: observed.mounts.get(fs.target, {}) for fs in spec.tmpfs}
    keys = ("type", "uid", "gid", "mode")
    return {target: tuple(mount.get(key) for key in keys) for target, mount in by_target.items()}


def tmpfs_sizes(spec: SandboxSpec, observed: Observed) -> dict[str, Any]:
    """Size in bytes and number of files of each."""
    return {
        fs.target: (size_of(observed, fs.target, fs.size_bytes), observed.mounts.get(fs.target, {}).get("inodes"))
        for fs in spec.tmpfs
    }


def size_of(observed: Observed, target: str, asked_bytes: int) -> Any:  # noqa: ANN401 a number or None
    """The size of a memory file system. A size that was only rounded up to whole pages counts as the requested one."""
    size: int | None = observed.mounts.get(target, {}).get("size_bytes")
    return asked_bytes if size is not None and asked_bytes <= size < asked_bytes + PAGE_BYTES else size


def tmpfs_options(spec: SandboxSpec, observed: Observed) -> dict[str, Any]:
    """The options of each, as far as they matter."""
    return {fs.target: normalize.sorted_set(options_of(observed, fs.target) & _OPTIONS) for fs in spec.tmpfs}


def expected_tmpfs_options(spec: SandboxSpec) -> dict[str, Any]:
    """The requested options."""
    return {fs.target: normalize.sorted_set(_OPTIONS - {"ro", "noexec"}) for fs in spec.tmpfs}


_OPTIONS = frozenset({"nosuid", "nodev", "noexec", "ro", "rw"})


def unexpected_interfaces(_: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Network interfaces other than the loopback device."""
    return tuple(name for name in observed.inside["interfaces"] if not _is_idle(name))


def _is_idle(name: str) -> bool:
    """Whether this is lo, or a tunnel device that the kernel adds to every network namespace, down and unaddressed."""
    return name in {"lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}


#: Device nodes of every container.
COMMON_NODES = frozenset(
    f"/dev/{name}" for name in ("console", "full", "null", "ptmx", "pts/ptmx", "random", "tty", "urandom", "zero")
)
#: The same by number, with pseudo-terminals and /dev/net/tun, which engines allow by default but do not create.
_COMMON_NUMBERS = frozenset({"1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:1", "5:2", "10:200", "136:*"})
#: A vendor's driver needs the helpers.
_HELPERS = re.compile(r"/dev/(nvidiactl|nvidia-uvm|nvidia-uvm-tools|nvidia-modeset|nvidia-caps/.+|kfd)")
#: Each leased device has at most one node of each kind: where nvidia-drm is loaded, one of NVIDIA's has all three.
_ACCELERATORS = tuple(re.compile(f"/dev/{name}\\d+") for name in ("nvidia", "dri/renderD", "dri/card"))


def unexpected_device_nodes(spec: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Device nodes inside that the spec does not have."""
    paths = [path for path in observed.inside["devices"] if path not in COMMON_NODES]
    if spec.runtime in GVISOR:
        # gVisor creates these itself. No device of the host is behind them.
        paths = [path for path in paths if path not in ("/dev/net/tun", "/dev/fuse")]
    if spec.devices is None:
        return tuple(paths)
    if spec.devices.driver is DeviceDriver.NODES:
        return tuple(path for path in paths if path not in spec.devices.ids)
    if spec.devices.nodes:
        return tuple(path for path in paths if path not in spec.devices.nodes)
    kinds = [[path for path in paths if kind.fullmatch(path)] for kind in _ACCELERATORS]
    named = {path for kind in kinds for path in kind}
    surplus = [path for kind in kinds if len(kind) > len(spec.devices.ids) for path in kind]
    return (*(path for path in paths if path not in named and not _HELPERS.fullmatch(path)), *surplus)


def missing_device_nodes(spec: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Leased device nodes that are missing inside."""
    if spec.devices is None or spec.devices.driver is not DeviceDriver.NODES:
        return ()
    return tuple(path for path in spec.devices.ids if path not in observed.inside["devices"])


def unexpected_device_numbers(spec: SandboxSpec, observed: Observed) -> Any:  # noqa: ANN401 numbers or NOT_OBSERVED
    """Numbers of devices that the cgroup allows beyond the common ones, if the leased devices are known by node."""
    if observed.kernel.devices is NOT_OBSERVED or (
        spec.devices is not None and spec.devices.driver is not DeviceDriver.NODES
    ):
        return NOT_OBSERVED
    opened = (entry.split() for entry in observed.kernel.devices if set(entry.split()[2]) & set("rw"))
    foreign = normalize.sorted_set(
        " ".join(fields) for fields in opened if fields[0] != "c" or fields[1] not in _COMMON_NUMBERS
    )
    leased = 0 if spec.devices is None else len(spec.devices.ids)
    # Only the host's /dev tells the numbers of the leased nodes. Here only their count can be checked.
    return () if len(foreign) <= leased and not any("*" in entry for entry in foreign) else foreign


def expected_affinity(spec: SandboxSpec) -> tuple[Any, ...]:
    """The CPUs that process 1 may use, as it numbers them. gVisor numbers its CPUs from 0."""
    cpus = spec.limits.cpus
    return normalize.sorted_set(range(len(cpus)) if spec.runtime in GVISOR else cpus)


def no_new_privs(spec: SandboxSpec, observed: Observed) -> Any:  # noqa: ANN401 text or NOT_OBSERVED
    """no_new_privs in process 1's status. Some releases of gVisor have no such line."""
    value = observed.inside["no_new_privs"]
    return NOT_OBSERVED if not value and spec.runtime in GVISOR else value


def rlimits_inside(_: SandboxSpec, observed: Observed) -> dict[str, tuple[int, ...]]:
    """The limits of process 1 as it observes them."""
    return {name: tuple(limit) for name, limit in observed.inside["limits"].items()}
