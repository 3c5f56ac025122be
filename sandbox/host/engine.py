"""The container engine: starts single-use containers from specs and removes them. Only `sandbox/` uses the Docker SDK.

Owns the containers with our owner label, from creation to removal. Must not know what runs inside them; the
conversation is in `sandbox.host.container`. Every wait is bounded.

The engine must be on this host, behind a Unix socket: containers bind this host's directories, and their cgroups are
read here.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import json
import math
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sandbox.errors import EngineRefused, EngineUnavailable, Leftover, NotReaped, NotThere, SandboxError
from sandbox.host import accounts, cdi
from sandbox.host.attach import attach
from sandbox.host.cgroup import reader_for
from sandbox.host.container import Container, ContainerReport, EndState
from sandbox.host.hostroot import HostRoot
from sandbox.host.kernel_view import read_kernel_view
from sandbox.host.process_identity import identity, is_gone
from sandbox.policy import hardening, hostconfig
from sandbox.policy.observed import Observed
from sandbox.spec import SandboxSpec

if TYPE_CHECKING:
    # Imported where an engine is used: most commands use none, and the SDK brings two HTTP libraries.
    import docker

#: From the start to `ready`. Includes reading the interpreter from a cold disk.
READY_TIMEOUT_S = 60.0
#: From the start until the libraries are imported on other cores than the container's.
IMPORT_TIMEOUT_S = 120.0
#: Limit of one engine call while a container is removed. A kill can hang if a device fell off the bus.
REMOVE_TIMEOUT_S = 20.0
HOST_ROOT_REPOSITORY = "kernel-runner/host-root"
#: The name holds no dash: systemd would create it below another slice. Its unit is in `systemd/`.
SLICE = "kernelrunner.slice"
#: Unless its configuration names another.
CONTAINERD_ROOT = "/var/lib/containerd"
DEFAULT_SOCKET = "unix:///var/run/docker.sock"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """The engine's description of itself."""

    version: str
    api_version: str
    runtimes: tuple[str, ...]
    cgroup_version: str
    cgroup_driver: str
    storage_driver: str
    rootless: bool
    #: Devices that the engine can give by CDI (DeviceDriver.CDI): full name -> their nodes inside (`cdi.offered`).
    cdi: Mapping[str, tuple[str, ...]]
    #: Directories of images and containers, as the engine sees them.
    data_roots: tuple[Path, ...] = ()
    #: Versions of the engine's components by lower-case name: runc, containerd, ...
    components: Mapping[str, str] = field(default_factory=dict)

    @property
    def slice(self) -> str | None:
        """The slice for sandboxes if the engine leaves cgroups to systemd; None for other engines."""
        return SLICE if self.cgroup_driver == "systemd" else None


class DockerEngine:
    """A Docker engine, or another one with the same API. Thread-safe: every call has a connection of its own.

    Every method raises EngineUnavailable if no engine answers.
    """

    def __init__(self, base_url: str | None = None, *, owner: str, timeout_s: float = 60) -> None:
        """Store the engine's address. The engine is not called before the first request.

        `base_url`: None: DOCKER_HOST, else the default socket. `owner`: value of the label by which `reap` finds our
        containers; unique per daemon. `timeout_s`: limit of one engine call.

        Raises:
            EngineRefused: the address is not a Unix socket.
        """
        self.base_url = base_url or os.environ.get("DOCKER_HOST") or DEFAULT_SOCKET
        self.owner = owner
        if not self.base_url.startswith(("unix://", "http+unix://")):
            raise EngineRefused(
                f"engine address is {self.base_url!r}, expected unix:///path: sandboxes bind this host's directories"
                " and read this host's cgroups; set DOCKER_HOST or docker_host"
            )
        self._socket_path = "/" + self.base_url.split("://", 1)[1].lstrip("/")
        self._timeout_s = timeout_s
        self._api_version: str | None = None
        self._idle: queue.LifoQueue[docker.APIClient] = queue.LifoQueue()
        self._import_lock = threading.Lock()
        self._accepted_images: set[str] = set()
        #: By the container that has them, until it is gone.
        self._lent: dict[str, accounts.LentAccounts] = {}
        #: Those of containers that are being created; and whether a creation had no answer.
        self._creating: set[accounts.LentAccounts] = set()
        self._lost = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections. Containers stay: see `Container.close` and `reap`."""
        while (client := self._take_idle()) is not None:
            client.close()

    # --- questions -----------------------------------------------------------------------------------------------

    def check(self) -> EngineFacts:
        """Ask the engine for its description.

        Raises:
            EngineRefused: it gives none.
        """
        return self._call("info", lambda api: _facts(api.info(), api.version()))

    def image_id(self, reference: str) -> str:
        """Return the id (sha256:...) of an image.

        Raises:
            EngineRefused: the engine does not have the image, or a sandbox cannot use it.
        """
        try:
            image_id, volumes = self._call(f"image {reference!r}", lambda api: _image(api, reference))
        except NotThere as error:
            raise EngineRefused(
                f"image {reference!r}: the engine at {self.base_url} does not have it; pull or build it first"
                " (docker pull, or docker build with a file from sandbox/image)"
            ) from error
        if volumes:
            raise EngineRefused(
                f"image {reference!r}: it declares the volumes {', '.join(volumes)}, which would be writable"
                " disk in every sandbox; expected none: build it without VOLUME"
            )
        self._accepted_images.add(image_id)
        return image_id

    def ensure_host_root(self, root: HostRoot) -> str:
        """Return the image id of the `host` root file system; import it once per content.

        Raises:
            RootFilesystemError: this host's files do not make a usable root.
            EngineRefused: the engine refused the import.
        """
        archive = root.tar()
        # The same files have the same name.
        reference = f"{HOST_ROOT_REPOSITORY}:{hashlib.sha256(archive).hexdigest()[:32]}"
        with self._import_lock:
            try:
                return self.image_id(reference)
            except EngineRefused as error:
                if not isinstance(error.__cause__, NotThere):
                    raise
            self._call(
                f"import of {reference}",
                # Not import_image_from_data: it has no timeout.
                lambda api: api.import_image(
                    io.BytesIO(archive),
                    repository=HOST_ROOT_REPOSITORY,
                    tag=reference.rpartition(":")[2],
                    changes=[
                        f"LABEL {name}={json.dumps(value)}"
                        for name, value in (
                            (hostconfig.LABEL_OWNER, self.owner),
                            (hostconfig.LABEL_CREATOR, identity()),
                        )
                    ],
                ),
            )
            return self.image_id(reference)

    # --- containers ----------------------------------------------------------------------------------------------

    def start(self, spec: SandboxSpec, *, wait_for_cores: Callable[[], None] = lambda: None) -> Container:
        """Create, attach and start a container, wait for `ready`, and check that it matches the spec.

        `wait_for_cores`: called when the libraries are imported on `import_cpus`; the container gets its own cores when
        it returns.

        Raises:
            EngineRefused: the engine refused, or the container differs from the spec. No submission ran in it.
            ProtocolError: something other than init answered, or nothing did in time.
        """
        errors = hostconfig.spec_errors(spec)
        if errors:
            raise EngineRefused(f"sandbox spec: {'; '.join(errors)}")
        if spec.image not in self._accepted_images:
            self.image_id(spec.image)
        container_id, spec = self._create(spec)
        with self._removed_after_failure(container_id), contextlib.ExitStack() as undo:
            timeout_s = min(self._timeout_s, READY_TIMEOUT_S)
            attachment = attach(self._socket_path, self._version(), container_id, timeout_s=timeout_s)
            undo.callback(attachment.close)
            self._on(container_id, "start", lambda api: api.start(container_id))
            # Init starts in parallel with these calls.
            inspected = self._inspect(container_id)
            pid = int(inspected["State"].get("Pid") or 0)
            cgroup = reader_for(pid, container_id)
            undo.callback(cgroup.close)
            container = Container(
                id=container_id,
                spec=spec,
                attachment=attachment,
                counters=cgroup,
                kill=lambda: self._kill(container_id),
                ended=lambda patience_s: self._ended(container_id, patience_s),
                remove=lambda: self._remove(container_id),
            )
            if spec.import_cpus:
                container.wait_imported(IMPORT_TIMEOUT_S)
                wait_for_cores()
                own = hardening.number_list(spec.limits.cpus)
                self._on(container_id, "update", lambda api: api.update_container(container_id, cpuset_cpus=own))
                inspected = self._inspect(container_id)
            container.wait_ready(READY_TIMEOUT_S)
            container.attested = _attest(
                container, Observed(engine=inspected, kernel=read_kernel_view(pid, cgroup), inside=container.facts)
            )
            undo.pop_all()
        return container

    def _create(self, spec: SandboxSpec) -> tuple[str, SandboxSpec]:
        """Create a container; its id, and the spec with the accounts that it has."""
        lent = accounts.lend()
        spec = replace(spec, accounts=lent.accounts)
        body = hostconfig.create_body(spec, owner=self.owner)
        body["Labels"][hostconfig.LABEL_CREATOR] = identity()
        if spec.import_cpus:
            body["HostConfig"]["CpusetCpus"] = hardening.number_list(spec.import_cpus)
        self._creating.add(lent)
        try:
            container_id = self._call("create", lambda api: _create(api, body))
            self._lent[container_id] = lent
        except BaseException:
            lent.give_back()
            self._lost = True
            raise
        finally:
            self._creating.discard(lent)
        return container_id, spec

    @contextlib.contextmanager
    def _removed_after_failure(self, container_id: str) -> Iterator[None]:
        """Remove a container whose start fails. The error has it if it could not be removed."""
        try:
            yield
        except BaseException as error:
            reported = error
            if isinstance(error, Exception) and not isinstance(error, SandboxError):
                reported = EngineRefused(f"container {container_id[:12]}: its start broke: {_named(error)}")
            leftover = _CreatedContainer(id=container_id, remove=self._remove)
            try:
                leftover.close()
            except SandboxError:
                if isinstance(reported, SandboxError):
                    reported.leftover = leftover
            if reported is error:
                raise
            raise reported from error

    def reap(self) -> int:
        """Remove all containers with our owner label and all orphans, running or not; return how many were ours.

        Raises:
            NotReaped: some could not be removed; all others were.
        """
        return self._reap(lambda _, labels: self._owns(labels) or _is_orphan(labels))

    def reap_orphans(self) -> int:
        """Remove all containers of any owner whose process has ended; return how many were ours.

        Raises:
            NotReaped: some could not be removed; all others were.
        """
        return self._reap(lambda _, labels: _is_orphan(labels))

    def reap_lost(self) -> int:
        """Remove what the engine created after this process had given up the answer; return how many that were.

        Raises:
            NotReaped: some could not be removed; all others were.
        """

        def is_lost(container_id: str, labels: Mapping[str, str]) -> bool:
            # What is being created may be listed before it is lent.
            if self._creating or container_id in self._lent:
                return False
            return self._owns(labels) and labels.get(hostconfig.LABEL_CREATOR) == identity()

        return self._reap(is_lost) if self._lost else 0

    def _reap(self, ours: Callable[[str, Mapping[str, str]], bool]) -> int:
        listed = self._call("list", _containers)
        own = [(container_id, labels) for container_id, labels in listed if ours(container_id, labels)]
        left: list[tuple[Leftover, Mapping[str, str]]] = []
        reasons: list[str] = []
        for container_id, labels in own:
            leftover = _CreatedContainer(id=container_id, remove=self._remove)
            try:
                leftover.close()
            except SandboxError as error:
                left.append((leftover, labels))
                reasons.append(str(error))
        if left:
            # A removal that hangs looks like an unavailable engine. If no engine answers, raise that error instead.
            self._call("ping", lambda api: api.ping())
            raise NotReaped("; ".join(reasons), left=left)
        return sum(self._owns(labels) for _, labels in own)

    def _owns(self, labels: Mapping[str, str]) -> bool:
        return labels.get(hostconfig.LABEL_OWNER) == self.owner

    def prune_host_roots(self, keep: Collection[str]) -> int:
        """Remove the `host` root file systems that earlier processes of this owner imported, except these image ids.

        Images that a container uses, another owner imported, or with another name stay. Returns how many were removed.
        """
        # Not by name: of two that were imported at once one has lost its own. What is made from one has its labels.
        gone = 0
        for image_id, labels, names in self._call("images", _images):
            stays = image_id in keep or any(not name.startswith((HOST_ROOT_REPOSITORY, "<none>")) for name in names)
            if stays or not self._owns(labels) or labels.get(hostconfig.LABEL_CREATOR) == identity():
                continue
            with contextlib.suppress(EngineRefused):
                self._call(f"image {image_id}: remove", lambda api, own=image_id: api.remove_image(own))  # type: ignore[misc]  # mypy: default in lambda
                gone += 1
        return gone

    def _on(self, container_id: str, what: str, call: Callable[[docker.APIClient], T], **options: float) -> T:
        return self._call(f"container {container_id[:12]}: {what}", call, **options)

    def _inspect(self, container_id: str) -> dict[str, Any]:
        return self._on(container_id, "inspect", lambda api: dict(api.inspect_container(container_id)))

    def _kill(self, container_id: str) -> None:
        """Send SIGKILL. A container that does not run is no error."""
        with contextlib.suppress(EngineRefused):
            self._on(container_id, "kill", lambda api: api.kill(container_id), timeout_s=REMOVE_TIMEOUT_S)

    def _ended(self, container_id: str, patience_s: float) -> EndState | None:
        """Wait for the container's end; None if it still runs after `patience_s`, or the engine does not answer."""
        with contextlib.suppress(EngineRefused, EngineUnavailable):
            # The client's own timeout does not apply to this call.
            self._on(container_id, "wait", lambda api: api.wait(container_id, timeout=math.ceil(patience_s)))
            return self._on(container_id, "inspect", lambda api: _end_state(api.inspect_container(container_id)))
        return None

    def _remove(self, container_id: str) -> None:
        """Remove by force and check that the container is gone; EngineRefused if it is there after several attempts."""
        deadline = time.monotonic() + REMOVE_TIMEOUT_S
        while True:
            try:
                self._on(
                    container_id,
                    "remove",
                    lambda api: api.remove_container(container_id, force=True, v=True),
                    timeout_s=REMOVE_TIMEOUT_S,
                )
                self._inspect(container_id)
            except NotThere:
                if (lent := self._lent.pop(container_id, None)) is not None:
                    lent.give_back()
                return
            except EngineRefused:
                # The engine is removing it already, or the kill has not taken effect yet.
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise EngineRefused(
                    f"container {container_id[:12]}: still there {REMOVE_TIMEOUT_S:.0f} s after it was removed by"
                    " force; do not use its devices until it is gone"
                )
            time.sleep(0.1)

    # --- connections ---------------------------------------------------------------------------------------------

    def _version(self) -> str:
        return self._api_version or self._call("version", lambda api: str(api.api_version))

    def _negotiated(self) -> str:
        """The API version, asked for anew: another release of the engine may have taken this one's place."""
        self._api_version = None
        self.close()
        return self._version()

    def _take_idle(self) -> docker.APIClient | None:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return None

    @contextlib.contextmanager
    def _client(self, timeout_s: float) -> Iterator[docker.APIClient]:
        # Probe first, because the HTTP client leaks its socket when it cannot connect.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout_s)
            probe.connect(self._socket_path)
        client = self._take_idle()
        if client is None:
            version = self._api_version or "auto"
            client = _sdk().APIClient(base_url=self.base_url, version=version, timeout=math.ceil(timeout_s))
            self._api_version = client.api_version
        client.timeout = math.ceil(timeout_s)
        try:
            yield client
        except BaseException:
            # A connection that failed half-way must not serve another call.
            client.close()
            raise
        self._idle.put(client)

    def _call(self, what: str, call: Callable[[docker.APIClient], T], *, timeout_s: float | None = None) -> T:
        """Make one engine call and translate its errors into ours.

        Raises:
            EngineRefused: the engine answered with an error, or what `call` does not understand.
        """
        import docker.errors
        import requests.exceptions
        import urllib3.exceptions

        spoken = None
        try:
            with self._client(timeout_s or self._timeout_s) as api:
                spoken = api.api_version
                return call(api)
        except docker.errors.NotFound as error:
            raise NotThere(f"{what}: the engine says: {error.explanation or error}") from error
        except docker.errors.APIError as error:
            if error.status_code == HTTPStatus.BAD_REQUEST and self._negotiated() != spoken:
                return self._call(what, call, timeout_s=timeout_s)
            raise EngineRefused(f"{what}: the engine refused: {error.explanation or error}") from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # Of the SDK, too, where an error has no message.
            raise EngineRefused(f"{what}: the engine's answer is not as expected: {_named(error)}") from error
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        ) as error:
            reason = _innermost(error)
            raise EngineUnavailable(
                f"no container engine answers at {self.base_url}: {_named(reason)}; "
                f"{_remedy(reason)}, or set DOCKER_HOST or docker_host to its socket (asked for: {what})"
            ) from error


@functools.cache
def _sdk() -> ModuleType:
    """The Docker SDK, kept from the configuration of whoever runs this process.

    Each of its clients would read `config.json` of the user, of DOCKER_CONFIG, or an older file: proxies, headers and
    programs that know passwords, for other engines and registries than ours, in forms that it does not check.
    """
    import docker
    from docker.utils import config

    config.find_config_file = lambda config_path=None: None  # noqa: ARG005 the SDK's signature
    return docker


def _create(api: docker.APIClient, body: dict[str, Any]) -> str:
    return str(api.create_container_from_config(body)["Id"])  # type: ignore[no-untyped-call] # the stubs leave it bare


def _facts(info: Mapping[str, Any], version: Mapping[str, Any]) -> EngineFacts:
    security = [option.split(",")[0] for option in info.get("SecurityOptions") or []]
    return EngineFacts(
        version=str(version.get("Version", "")),
        api_version=str(version.get("ApiVersion", "")),
        runtimes=tuple(sorted(info.get("Runtimes") or {})),
        cgroup_version=str(info.get("CgroupVersion", "1")),
        cgroup_driver=str(info.get("CgroupDriver", "")),
        storage_driver=str(info.get("Driver", "")),
        rootless="name=rootless" in security,
        cdi=cdi.offered(info, str(version.get("ApiVersion", ""))),
        data_roots=_data_roots(info),
        components={
            str(component.get("Name", "")).lower(): str(component.get("Version", ""))
            for component in version.get("Components") or []
        },
    )


def _image(api: docker.APIClient, reference: str) -> tuple[str, list[str]]:
    """Id and volumes of an image."""
    image = api.inspect_image(reference)  # type: ignore[no-untyped-call]
    return str(image["Id"]), sorted((image.get("Config") or {}).get("Volumes") or ())


def _containers(api: docker.APIClient) -> list[tuple[str, dict[str, str]]]:
    """Id and labels of every runner's containers."""
    listed = api.containers(all=True, filters={"label": hostconfig.LABEL_OWNER})
    return [(str(container["Id"]), dict(container.get("Labels") or {})) for container in listed]


def _images(api: docker.APIClient) -> list[tuple[str, dict[str, str], tuple[str, ...]]]:
    """Id, labels and names of every runner's images."""
    listed = api.images(filters={"label": hostconfig.LABEL_OWNER})
    return [(str(one["Id"]), dict(one.get("Labels") or {}), tuple(one.get("RepoTags") or ())) for one in listed]


def _end_state(container: Mapping[str, Any]) -> EndState:
    state = container["State"]
    return EndState(exit_code=int(state["ExitCode"]), oom_killed=bool(state.get("OOMKilled")))


def _data_roots(info: Mapping[str, Any]) -> tuple[Path, ...]:
    """The engine's own, and containerd's where it keeps the images; the engine does not say where that is."""
    kept = any("io.containerd.snapshotter.v1" in pair for pair in info.get("DriverStatus") or ())
    return tuple(Path(root) for root in (info.get("DockerRootDir"), CONTAINERD_ROOT if kept else None) if root)


def _is_orphan(labels: Mapping[str, str]) -> bool:
    """Whether the process that could remove a container with these labels has ended."""
    return is_gone(labels.get(hostconfig.LABEL_CREATOR, ""))


def _attest(container: Container, observed: Observed) -> dict[str, Any]:
    """Check the container against its spec and return the record of what was checked; EngineRefused if it differs."""
    differences = hardening.violations(container.spec, observed)
    if differences:
        raise EngineRefused(
            f"container {container.id[:12]}: the engine made another container than was asked for:"
            f" {'; '.join(map(str, differences))}; nothing was run in it"
            " (docs/security.md#container-settings says what each setting is for)"
        )
    return hardening.attested(container.spec, observed)


@dataclass(frozen=True, kw_only=True)
class _CreatedContainer:
    """A container without a conversation, which can only be removed."""

    id: str
    remove: Callable[[str], None]

    def close(self) -> None:
        """Remove the container."""
        self.remove(self.id)


def _remedy(reason: BaseException) -> str:
    if isinstance(reason, PermissionError):
        return "let this user open it (usermod --append --groups docker USER, then log in again)"
    if isinstance(reason, TimeoutError):
        return "see what it is busy with (journalctl --unit docker)"
    if isinstance(reason, OSError) and reason.errno in (errno.EMFILE, errno.ENFILE):
        return "let this process open more files (LimitNOFILE=, fs.file-max)"
    return "start it (systemctl start docker)"


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _innermost(error: BaseException) -> BaseException:
    """Find the operating system's error below the layers of the HTTP client."""
    reason: BaseException = error
    inner: BaseException | None = error
    for _ in range(20):
        if inner is None:
            break
        if isinstance(inner, OSError):
            reason = inner
        inner = inner.__cause__ or inner.__context__
    return reason


__all__ = ["Container", "ContainerReport", "DockerEngine", "EngineFacts"]
