"""What the kernel and init say of single settings, as functions that `hardening` puts into its table. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox.policy import normalize
from sandbox.policy.observed import NOT_OBSERVED, Observed, Source
from sandbox.spec import DeviceDriver, SandboxSpec

#: Filters system calls and keeps limits outside of what the container sees.
GVISOR = frozenset({"runsc"})
PAGE_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Check:
    """One comparison: what a witness says of a setting, and what it ought to say."""

    source: Source
    #: What is looked at, in words that go on with "is".
    what: str
    expected: Callable[[SandboxSpec], Any]
    #: NOT_OBSERVED where the witness has nothing to say.
    found: Callable[[SandboxSpec, Observed], Any]
    #: Runtimes under which the witness sees something else by design.
    except_under: frozenset[str] = frozenset()


def engine_value(observed: Observed, key: str) -> Any:  # noqa: ANN401 whatever JSON holds
    """What the engine says of a setting, by its path in the create request; None where it says nothing."""
    place: Any = observed.engine if key.startswith("HostConfig.") else observed.engine.get("Config") or {}
    for part in key.split("."):
        place = (place or {}).get(part)
    return place


def kernel_check(
    what: str, name: str, expected: Callable[[SandboxSpec], Any], *, except_under: frozenset[str] = frozenset()
) -> Check:
    """The kernel's word: a field of witness.Kernel."""
    return Check(
        source=Source.KERNEL,
        what=what,
        expected=expected,
        found=lambda _, observed: getattr(observed.kernel, name),
        except_under=except_under,
    )


def inside_check(
    what: str,
    expected: Callable[[SandboxSpec], Any],
    found: Callable[[SandboxSpec, Observed], Any],
    *,
    except_under: frozenset[str] = frozenset(),
) -> Check:
    """Init's word."""
    return Check(source=Source.INSIDE, what=what, expected=expected, found=found, except_under=except_under)


def own_namespace_check(name: str) -> Check:
    """The kernel's word that a namespace is not this process's."""

    def found(_: SandboxSpec, observed: Observed) -> Any:  # noqa: ANN401 a truth value or NOT_OBSERVED
        shared = observed.kernel.shared_namespaces
        return NOT_OBSERVED if shared is NOT_OBSERVED else name not in shared

    # gVisor's process stands for a kernel of its own, and shares what it has no use for.
    return Check(
        source=Source.KERNEL,
        what=f"having a {name} namespace of its own",
        expected=lambda _: True,
        found=found,
        except_under=GVISOR,
    )


def reported_mounts(_: SandboxSpec, observed: Observed) -> tuple[Any, ...]:
    """What the engine has really mounted: destination, type, source, writable, propagation."""
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


#: Writable mounts of these types are the kernel's own, and their files have owners and modes.
_KERNEL_TYPES = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue"})
#: Where runtimes put memory file systems and device files by themselves.
_RUNTIME_PLACES = ("/proc/", "/sys/", "/dev/")


def unexpected_writable_mounts(spec: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Writable mounts that nobody asked for."""
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
    """Type, owner, group and mode of the memory file systems that were asked for."""
    # Some runtimes give one the mode of the directory it covers, whatever was asked for.
    found = {fs.target: observed.mounts.get(fs.target, {}) for fs in spec.tmpfs}
    return {target: tuple(mount.get(key) for key in ("type", "uid", "gid", "mode")) for target, mount in found.items()}


def tmpfs_sizes(spec: SandboxSpec, observed: Observed) -> dict[str, Any]:
    """How many bytes and files they take."""
    return {
        fs.target: (size_of(observed, fs.target, fs.size_bytes), observed.mounts.get(fs.target, {}).get("inodes"))
        for fs in spec.tmpfs
    }


def size_of(observed: Observed, target: str, wanted_bytes: int) -> Any:  # noqa: ANN401 a number or None
    """The size of a memory file system; the whole pages that hold what was asked for count as that."""
    found: int | None = observed.mounts.get(target, {}).get("size_bytes")
    return wanted_bytes if found is not None and wanted_bytes <= found < wanted_bytes + PAGE_BYTES else found


def tmpfs_options(spec: SandboxSpec, observed: Observed) -> dict[str, Any]:
    """Their options, of those that matter."""
    return {fs.target: normalize.sorted_set(options_of(observed, fs.target) & _OPTIONS) for fs in spec.tmpfs}


def expected_tmpfs_options(spec: SandboxSpec) -> dict[str, Any]:
    """The options that were asked for."""
    return {
        fs.target: normalize.sorted_set(_OPTIONS - ({"ro", "noexec"} if fs.executable else {"ro"})) for fs in spec.tmpfs
    }


_OPTIONS = frozenset({"nosuid", "nodev", "noexec", "ro", "rw"})


def unexpected_interfaces(_: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Network interfaces besides the loopback device."""
    return tuple(name for name in observed.inside["interfaces"] if not _is_idle(name))


def _is_idle(name: str) -> bool:
    """Tunnel devices that the kernel puts into every network namespace, down and without an address."""
    return name in {"lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}


#: What every container has in /dev.
COMMON_NODES = frozenset(
    f"/dev/{name}" for name in ("console", "full", "null", "ptmx", "pts/ptmx", "random", "tty", "urandom", "zero")
)
#: The same by number, with pseudo-terminals and, as engines allow it by default, /dev/net/tun, which is not there.
_COMMON_NUMBERS = frozenset({"1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:1", "5:2", "10:200", "136:*"})
#: What a vendor's driver needs beside the devices themselves, and those, one of each to a leased device.
_HELPERS = re.compile(r"/dev/(nvidiactl|nvidia-uvm|nvidia-uvm-tools|nvidia-modeset|nvidia-caps/.+|kfd|dri/card\d+)")
_ACCELERATORS = re.compile(r"/dev/(nvidia\d+|dri/renderD\d+)")


def unexpected_device_nodes(spec: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Device nodes inside that nobody asked for."""
    found = [path for path in observed.inside["devices"] if path not in COMMON_NODES]
    if spec.runtime in GVISOR:
        # Its own, without anything behind it.
        found = [path for path in found if path not in ("/dev/net/tun", "/dev/fuse")]
    if spec.devices is None:
        return tuple(found)
    if spec.devices.driver is DeviceDriver.NODES:
        return tuple(path for path in found if path not in spec.devices.ids)
    named = [path for path in found if _ACCELERATORS.fullmatch(path)]
    surplus = named if len(named) > len(spec.devices.ids) else []
    return (*(path for path in found if path not in named and not _HELPERS.fullmatch(path)), *surplus)


def missing_device_nodes(spec: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Leased device nodes that are not there."""
    if spec.devices is None or spec.devices.driver is not DeviceDriver.NODES:
        return ()
    return tuple(path for path in spec.devices.ids if path not in observed.inside["devices"])


def unexpected_device_numbers(spec: SandboxSpec, observed: Observed) -> Any:  # noqa: ANN401 numbers or NOT_OBSERVED
    """Devices by number that the cgroup lets be opened beside the common ones, where it is known which are leased."""
    if observed.kernel.devices is NOT_OBSERVED or (
        spec.devices is not None and spec.devices.driver is not DeviceDriver.NODES
    ):
        return NOT_OBSERVED
    opened = (entry.split() for entry in observed.kernel.devices if set(entry.split()[2]) & set("rw"))
    foreign = normalize.sorted_set(
        " ".join(fields) for fields in opened if fields[0] != "c" or fields[1] not in _COMMON_NUMBERS
    )
    leased = 0 if spec.devices is None else len(spec.devices.ids)
    # Which numbers the leased nodes have is known to the host's /dev only; how many there may be is known here.
    return () if len(foreign) <= leased and not any("*" in entry for entry in foreign) else foreign


def expected_affinity(spec: SandboxSpec) -> tuple[Any, ...]:
    """The cores process 1 may run on, as it numbers them: gVisor counts those it has from 0."""
    cpus = spec.limits.cpus
    return normalize.sorted_set(range(len(cpus)) if spec.runtime in GVISOR else cpus)


def no_new_privs(spec: SandboxSpec, observed: Observed) -> Any:  # noqa: ANN401 text or NOT_OBSERVED
    """What process 1's status says; some releases of gVisor have no such line."""
    found = observed.inside["no_new_privs"]
    return NOT_OBSERVED if not found and spec.runtime in GVISOR else found


def rlimits_inside(_: SandboxSpec, observed: Observed) -> dict[str, tuple[int, ...]]:
    """The limits of process 1 as it sees them."""
    return {name: tuple(limit) for name, limit in observed.inside["limits"].items()}
