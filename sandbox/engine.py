"""The container engine: starts single-use sandboxes from specs and removes them. The only door to the Docker SDK.

Owns containers that carry our owner label, from create to removal. Must not know what runs inside: see `engine_box` for
the conversation. Every wait is bounded. Called by runner.evaluation.evaluate and by the daemon at start-up.

Works over a Unix socket: binds and cgroup counters need the engine to be on this host.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import docker
import docker.errors
import docker.utils
import requests.exceptions
import urllib3.exceptions

from sandbox import hardening, hostconfig
from sandbox.cgroup import reader_for
from sandbox.creator import identity, is_gone
from sandbox.engine_attach import attach
from sandbox.engine_box import Box, BoxReport, EndState
from sandbox.errors import EngineRefused, EngineUnavailable, Leftover, NotReaped, SandboxError
from sandbox.hostroot import HostRoot
from sandbox.spec import SandboxSpec
from sandbox.witness import Seen, kernel_view

#: From start to `ready`; includes pulling the interpreter from a cold disk.
READY_TIMEOUT_S = 60.0
#: One engine call while a container is taken down. A kill can hang when a device fell off the bus.
REMOVE_TIMEOUT_S = 20.0
HOST_ROOT_REPOSITORY = "kernel-runner/host-root"
#: No dash in it: to systemd that would be a slice below another one. `systemd/` has its unit.
SLICE = "kernelrunner.slice"
DEFAULT_SOCKET = "unix:///var/run/docker.sock"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """What the engine says of itself."""

    name: str
    version: str
    api_version: str
    runtimes: tuple[str, ...]
    cgroup_version: str
    cgroup_driver: str
    storage_driver: str
    rootless: bool
    #: Whether the engine knows the Container Device Interface (DeviceDriver.CDI).
    cdi: bool
    #: Where it keeps images and containers, as it sees it; empty where it does not say.
    data_root: str = ""
    #: Versions of what it consists of, by lower-case name: runc, containerd, ...
    components: Mapping[str, str] = field(default_factory=dict)

    @property
    def slice(self) -> str | None:
        """The slice that sandboxes lie in, for an engine that leaves cgroups to systemd; None for any other."""
        return SLICE if self.cgroup_driver == "systemd" else None


class DockerEngine:
    """A Docker engine (or one that speaks its API). Thread-safe: every call uses a connection of its own."""

    def __init__(self, base_url: str | None = None, *, owner: str, timeout_s: float = 60) -> None:
        """Remember where the engine is; nothing is asked before the first call.

        `base_url`: None takes DOCKER_HOST, else the default socket. `owner`: value of the label by which `reap` knows
        our containers; unique per daemon. `timeout_s`: bound of one engine call.

        Raises:
            EngineRefused: the address is not a Unix socket.
        """
        self.base_url = base_url or docker.utils.kwargs_from_env().get("base_url") or DEFAULT_SOCKET
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections. Containers are left alone: see `Box.close` and `reap`."""
        while (client := self._take_idle()) is not None:
            client.close()

    # --- questions -----------------------------------------------------------------------------------------------

    def check(self) -> EngineFacts:
        """Ask the engine about itself.

        Raises:
            EngineUnavailable: no engine answers.
        """
        info = self._call("info", lambda api: api.info())
        version = self._call("version", lambda api: api.version())
        security = [option.split(",")[0] for option in info.get("SecurityOptions") or []]
        return EngineFacts(
            name=str(info.get("Name", "")),
            version=str(version.get("Version", "")),
            api_version=str(version.get("ApiVersion", "")),
            runtimes=tuple(sorted(info.get("Runtimes") or {})),
            cgroup_version=str(info.get("CgroupVersion", "1")),
            cgroup_driver=str(info.get("CgroupDriver", "")),
            storage_driver=str(info.get("Driver", "")),
            rootless="name=rootless" in security,
            cdi=bool(info.get("CDISpecDirs")),
            data_root=str(info.get("DockerRootDir") or ""),
            components={
                str(component.get("Name", "")).lower(): str(component.get("Version", ""))
                for component in version.get("Components") or []
            },
        )

    def image_id(self, reference: str) -> str:
        """The id (sha256:...) of an image the engine has.

        Raises:
            EngineRefused: the engine does not have it, or it cannot be used for a sandbox.
            EngineUnavailable: no engine answers.
        """
        try:
            image = self._call(f"image {reference!r}", lambda api: _inspect_image(api, reference))
        except _NotFound as error:
            raise EngineRefused(
                f"image {reference!r}: the engine at {self.base_url} does not have it; pull or build it first"
                " (docker pull, or docker build with a file from sandbox/image)"
            ) from error
        volumes = (image.get("Config") or {}).get("Volumes")
        if volumes:
            raise EngineRefused(
                f"image {reference!r}: it declares the volumes {', '.join(sorted(volumes))}, which would be writable"
                " disk in every sandbox; expected none: build it without VOLUME"
            )
        image_id = str(image["Id"])
        self._accepted_images.add(image_id)
        return image_id

    def ensure_host_root(self, root: HostRoot) -> str:
        """The image id of the `host` root file system, imported once per content.

        Raises:
            RootFilesystemError: this host's files do not make a root.
            EngineRefused: the engine would not import it.
            EngineUnavailable: no engine answers.
        """
        archive = root.tar()
        reference = host_root_reference(root)
        with self._import_lock:
            try:
                return self.image_id(reference)
            except EngineRefused as error:
                if not isinstance(error.__cause__, _NotFound):
                    raise
            self._call(
                f"import of {reference}",
                # Not import_image_from_data: that one waits without bound.
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

    def start(self, spec: SandboxSpec) -> Box:
        """Create, attach, start, wait for `ready`, and check that the box is what was asked for.

        Raises:
            EngineRefused: the engine would not, or the box differs from the spec (nothing ran in it).
            EngineUnavailable: the engine does not answer.
            ProtocolError: something else than the steward spoke, or nothing did in time.
        """
        wrong = hostconfig.complaints(spec)
        if wrong:
            raise EngineRefused(f"sandbox spec: {'; '.join(wrong)}")
        if spec.image not in self._accepted_images:
            self.image_id(spec.image)
        body = hostconfig.create_body(spec, owner=self.owner)
        body["Labels"][hostconfig.LABEL_CREATOR] = identity()
        container_id = self._call("create", lambda api: _create(api, body))
        attachment = box = None
        try:
            attachment = attach(
                self._socket_path, self._version(), container_id, timeout_s=min(self._timeout_s, READY_TIMEOUT_S)
            )
            self._call(f"container {container_id[:12]}: start", lambda api: api.start(container_id))
            # The steward starts meanwhile.
            inspected = self._inspect(container_id)
            pid = int(inspected["State"].get("Pid") or 0)
            cgroup = reader_for(pid, container_id)
            box = Box(
                id=container_id,
                spec=spec,
                attachment=attachment,
                counters=cgroup,
                kill=lambda: self._kill(container_id),
                ended=lambda patience_s: self._ended(container_id, patience_s),
                remove=lambda: self._remove(container_id),
            )
            box.wait_ready(READY_TIMEOUT_S)
            box.attested = _attest(box, Seen(engine=inspected, kernel=kernel_view(pid, cgroup), inside=box.facts))
        except BaseException as error:
            if attachment is not None:
                attachment.close()
            leftover: Leftover = box or _Unstarted(id=container_id, remove=self._remove)
            try:
                leftover.close()
            except (EngineRefused, EngineUnavailable):
                # The first error is the one to report; with it goes what could not be removed.
                if isinstance(error, SandboxError):
                    error.leftover = leftover
            raise
        return box

    def reap(self) -> int:
        """Remove every container with our owner label, running or not, and every orphan; returns how many were ours.

        Raises:
            NotReaped: one would not go; the others are gone.
            EngineUnavailable: no engine answers.
        """
        return self._reap(lambda labels: self._owns(labels) or _is_orphan(labels))

    def reap_orphans(self) -> int:
        """Remove every container whose process has ended, whoever that was; returns how many were ours.

        Raises:
            NotReaped: one would not go; the others are gone.
            EngineUnavailable: no engine answers.
        """
        return self._reap(_is_orphan)

    def _reap(self, ours: Callable[[Mapping[str, str]], bool]) -> int:
        listed = self._call("list", lambda api: api.containers(all=True, filters={"label": hostconfig.LABEL_OWNER}))
        found = [container for container in listed if ours(container.get("Labels") or {})]
        left: list[tuple[Leftover, Mapping[str, str]]] = []
        reasons: list[str] = []
        for container in found:
            leftover = _Unstarted(id=str(container["Id"]), remove=self._remove)
            try:
                leftover.close()
            except (EngineRefused, EngineUnavailable) as error:
                left.append((leftover, container["Labels"]))
                reasons.append(str(error))
        if left:
            # One removal that hangs looks like an engine that is away, which is another matter.
            self._call("ping", lambda api: api.ping())
            raise NotReaped("; ".join(reasons), left=left)
        return sum(self._owns(container["Labels"]) for container in found)

    def _owns(self, labels: Mapping[str, str]) -> bool:
        return labels.get(hostconfig.LABEL_OWNER) == self.owner

    def prune_host_roots(self, keep: Iterable[str]) -> int:
        """Remove the `host` root file systems that earlier processes of ours imported, but for these image ids.

        What a container uses, or what somebody else imported, stays. Returns how many went.

        Raises:
            EngineUnavailable: no engine answers.
        """
        kept = frozenset(keep)
        images = self._call("images", lambda api: api.images(name=HOST_ROOT_REPOSITORY))
        gone = 0
        for image in images:
            labels = image.get("Labels") or {}
            if image["Id"] in kept or not self._owns(labels) or labels.get(hostconfig.LABEL_CREATOR) == identity():
                continue
            with contextlib.suppress(EngineRefused):
                self._call(f"image {image['Id']}: remove", lambda api, found=image: api.remove_image(found["Id"]))  # type: ignore[misc]  # mypy: default in lambda
                gone += 1
        return gone

    def _inspect(self, container_id: str) -> dict[str, Any]:
        what = f"container {container_id[:12]}: inspect"
        found: dict[str, Any] = self._call(what, lambda api: api.inspect_container(container_id))
        return found

    def _kill(self, container_id: str) -> None:
        """SIGKILL; a container that is not running is fine."""
        with contextlib.suppress(EngineRefused):
            self._call(
                f"container {container_id[:12]}: kill",
                lambda api: api.kill(container_id),
                timeout_s=REMOVE_TIMEOUT_S,
            )

    def _ended(self, container_id: str, patience_s: float) -> EndState | None:
        """How the container ended, waiting at most so long; None when it still runs or cannot be asked."""
        with contextlib.suppress(EngineRefused, EngineUnavailable):
            # The client's own timeout does not apply to this call.
            what = f"container {container_id[:12]}: wait"
            self._call(what, lambda api: api.wait(container_id, timeout=math.ceil(patience_s)))
            state = self._inspect(container_id)["State"]
            return EndState(exit_code=int(state["ExitCode"]), oom_killed=bool(state.get("OOMKilled")))
        return None

    def _remove(self, container_id: str) -> None:
        """Remove by force and see that it is gone.

        Raises:
            EngineRefused: it is still there after several attempts.
            EngineUnavailable: no engine answers.
        """
        deadline = time.monotonic() + REMOVE_TIMEOUT_S
        while True:
            try:
                self._call(
                    f"container {container_id[:12]}: remove",
                    lambda api: api.remove_container(container_id, force=True, v=True),
                    timeout_s=REMOVE_TIMEOUT_S,
                )
                self._inspect(container_id)
            except _NotFound:
                return
            except EngineRefused:
                # "removal already in progress", or the kill has not taken effect yet.
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
        if self._api_version is None:
            with self._client(self._timeout_s):
                pass
        if self._api_version is None:
            raise EngineUnavailable(f"engine at {self.base_url}: it does not tell its API version")
        return self._api_version

    def _take_idle(self) -> docker.APIClient | None:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return None

    @contextlib.contextmanager
    def _client(self, timeout_s: float) -> Iterator[docker.APIClient]:
        # First, because the HTTP client leaks its socket when it cannot connect.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout_s)
            probe.connect(self._socket_path)
        client = self._take_idle()
        if client is None:
            version = self._api_version or "auto"
            client = docker.APIClient(base_url=self.base_url, version=version, timeout=math.ceil(timeout_s))
            self._api_version = client.api_version
        client.timeout = math.ceil(timeout_s)
        try:
            yield client
        except BaseException:
            # A connection that failed half-way must not serve the next call.
            client.close()
            raise
        self._idle.put(client)

    def _call(self, what: str, call: Callable[[docker.APIClient], T], *, timeout_s: float | None = None) -> T:
        """One engine call with its errors turned into ours.

        Raises:
            EngineRefused: the engine answered with an error.
            EngineUnavailable: it did not answer.
        """
        try:
            with self._client(timeout_s or self._timeout_s) as api:
                return call(api)
        except docker.errors.NotFound as error:
            raise _NotFound(f"{what}: the engine says: {error.explanation or error}") from error
        except docker.errors.APIError as error:
            raise EngineRefused(f"{what}: the engine refused: {error.explanation or error}") from error
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        ) as error:
            reason = _innermost(error)
            raise EngineUnavailable(
                f"no container engine answers at {self.base_url}: {type(reason).__name__}: {reason}; "
                f"{_remedy(reason)}, or set DOCKER_HOST or docker_host to its socket (asked for: {what})"
            ) from error


def host_root_reference(root: HostRoot) -> str:
    """What the image of a `host` root file system is called: the same files give the same name."""
    return f"{HOST_ROOT_REPOSITORY}:{root.content_hash[:32]}"


def _inspect_image(api: docker.APIClient, reference: str) -> dict[str, Any]:
    image: dict[str, Any] = api.inspect_image(reference)  # type: ignore[no-untyped-call] # the stubs leave it bare
    return image


def _create(api: docker.APIClient, body: dict[str, Any]) -> str:
    answer = api.create_container_from_config(body)  # type: ignore[no-untyped-call] # the stubs leave it bare
    return str(answer["Id"])


def _is_orphan(labels: Mapping[str, str]) -> bool:
    """Whether nobody is left who could remove a container with these labels."""
    return is_gone(labels.get(hostconfig.LABEL_CREATOR, ""))


def _attest(box: Box, seen: Seen) -> dict[str, Any]:
    """The record of what the box is.

    Raises:
        EngineRefused: it is not what was asked for.
    """
    differences = hardening.violations(box.spec, seen)
    if differences:
        raise EngineRefused(
            f"container {box.id[:12]}: the engine made another box than was asked for:"
            f" {'; '.join(map(str, differences))}; nothing was run in it"
            " (kernel-runner check --explain says what each setting is for)"
        )
    return hardening.attested(box.spec, seen)


@dataclass(frozen=True, kw_only=True)
class _Unstarted:
    """A container that was created, and nothing of which is to stay."""

    id: str
    remove: Callable[[str], None]

    def close(self) -> None:
        """Remove it."""
        self.remove(self.id)


class _NotFound(EngineRefused):
    """The engine has no such image or container."""


def _remedy(reason: BaseException) -> str:
    if isinstance(reason, PermissionError):
        return "let this user open it (usermod --append --groups docker USER, then log in again)"
    return "start it (systemctl start docker)"


def _innermost(error: BaseException) -> BaseException:
    """The operating system's reason below the layers of an HTTP client."""
    reason: BaseException = error
    inner: BaseException | None = error
    for _ in range(20):
        if inner is None:
            break
        if isinstance(inner, OSError):
            reason = inner
        inner = inner.__cause__ or inner.__context__
    return reason


__all__ = ["Box", "BoxReport", "DockerEngine", "EngineFacts", "host_root_reference"]
