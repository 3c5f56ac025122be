"""Images on the engine: builds evaluation images, lists our images, removes unused ones.

Our images are those built from a file in `sandbox/image`, found by their label, and the `host` root file systems, found
by their repository. Must not list or touch other images. An image that others built on top of ours inherits our label,
but is not ours.
"""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from sandbox.errors import EngineRefused
from sandbox.host.engine import HOST_ROOT_REPOSITORY, DockerEngine
from sandbox.host.process_identity import is_gone
from sandbox.policy import hostconfig

if TYPE_CHECKING:
    import docker

#: Label with the kind of the `sandbox/image` file that an image was built from.
LABEL_KIND: Final = "kernel-runner.image"
RECIPES: Final = Path(__file__).parents[1] / "image"
#: Longest time without output during a build: torch is downloaded and unpacked silently.
BUILD_SILENCE_S: Final = 1800.0
#: Number of last output lines that the error of a failed build shows.
_TAIL_LINES: Final = 15


@dataclass(frozen=True, kw_only=True)
class OurImage:
    """One of our images on the engine."""

    id: str
    tags: tuple[str, ...]
    #: `cpu`, `cuda`, `rocm`, or `host` for a root file system made from a host's own files.
    kind: str
    #: Owner of a `host` root file system: a daemon, a check or an evaluation. None for built images.
    owner: str | None
    #: Whether the process that imported it has ended, as far as this process can know.
    orphan: bool
    #: Unix time in seconds.
    created_s: int
    size_bytes: int
    #: Number of containers that use it, running or not.
    containers: int


class Images(DockerEngine):
    """Our images on an engine."""

    def build(
        self,
        kind: str,
        *,
        tag: str,
        arguments: Mapping[str, str],
        wheels: Path | None,
        network: str | None,
        say: Callable[[str], None],
    ) -> str:
        """Build the image of a kind (`cpu`, `cuda`, `rocm`) and tag it; return its image id.

        `arguments`: the Dockerfile's ARGs. `wheels`: a folder of wheels to add to the build context. `network`: network
        of the build steps; None: the engine's default. `say`: receives every line of output.

        Raises:
            EngineRefused: a step failed. The error names the step and shows its output.
            EngineUnavailable: no engine answers.
        """
        output: list[str] = []
        context = _context(kind, wheels)

        def listen(api: docker.APIClient) -> str | None:
            steps = api.build(
                fileobj=context,
                custom_context=True,
                dockerfile=_recipe(kind).name,
                tag=tag,
                buildargs=dict(arguments),
                network_mode=network,
                labels={LABEL_KIND: kind},
                rm=True,
                forcerm=True,
                decode=True,
            )
            for step in steps:
                for line in str(step.get("stream") or step.get("status") or "").splitlines():
                    if line.strip():
                        output.append(line)
                        say(line)
                if "error" in step:
                    return str(step["error"])
            return None

        with context:
            error = self._call(f"build of {tag}", listen, timeout_s=BUILD_SILENCE_S)
        if error is not None:
            tail = "\n".join(f"  {line}" for line in output[-_TAIL_LINES:])
            raise EngineRefused(f"image {tag!r} from {_recipe(kind).name}: {error}; the last of its output:\n{tail}")
        return self.image_id(tag)

    def ours(self) -> list[OurImage]:
        """List all our images, newest first.

        Raises:
            EngineUnavailable: no engine answers.
        """
        roots = self._call("images", lambda api: api.images(name=HOST_ROOT_REPOSITORY))
        built = self._call("images", lambda api: api.images(filters={"label": LABEL_KIND}))
        containers = self._call("list", lambda api: api.containers(all=True))
        using = [container.get("ImageID") for container in containers]
        mine = [*roots, *(image for image in built if self._ends_with_our_label(image["Id"]))]
        listed = {image["Id"]: _our_image(image, using.count(image["Id"])) for image in mine}
        return sorted(listed.values(), key=lambda image: (-image.created_s, image.id))

    def _ends_with_our_label(self, image_id: str) -> bool:
        """Whether our label was set in the image's last step. If not, others built on top of our image."""
        with contextlib.suppress(EngineRefused):
            steps = self._call(f"image {image_id}: history", lambda api: _history(api, image_id))
            return bool(steps) and LABEL_KIND in str(steps[0].get("CreatedBy"))
        # The image was removed meanwhile.
        return False

    def remove(self, image: OurImage) -> bool:
        """Remove an image unless it has come into use; return whether it is gone.

        Raises:
            EngineUnavailable: no engine answers.
        """
        with contextlib.suppress(EngineRefused):
            for name in image.tags or (image.id,):
                self._call(f"image {name}: remove", lambda api, name=name: api.remove_image(name))  # type: ignore[misc]  # mypy: default in lambda
            return True
        return False


def _history(api: docker.APIClient, image_id: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = api.history(image_id)  # type: ignore[no-untyped-call] # the stubs leave it bare
    return steps


def superseded(
    images: Sequence[OurImage], *, wanted: Sequence[str], owners: Callable[[str], bool], current: str | None
) -> list[OurImage]:
    """Return those of our images that are not needed any more.

    These are built images whose tag moved to a newer build, and `host` root file systems of these owners whose process
    has ended. Kept: images that a container uses, images that a GPU type names (`wanted`, ids), and the root file
    system of this host's present files (`current`, a tag).
    """

    def kept(image: OurImage) -> bool:
        if image.containers or image.id in wanted:
            return True
        if image.kind == "host":
            return not image.orphan or current in image.tags or image.owner is None or not owners(image.owner)
        return bool(image.tags)

    return [image for image in images if not kept(image)]


def kinds() -> tuple[str, ...]:
    """The kinds of images that can be built."""
    return tuple(sorted(path.suffix.removeprefix(".") for path in RECIPES.glob("Dockerfile.*")))


def _recipe(kind: str) -> Path:
    return RECIPES / f"Dockerfile.{kind}"


def _context(kind: str, wheels: Path | None) -> IO[bytes]:
    """The build context as a tar in an unnamed file: the Dockerfile, its programs, and the wheels.

    Owners and times are left out, so that unchanged files hit the engine's build cache.
    """

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        member.mode = 0o644
        return member

    packages = [] if wheels is None else sorted(wheels.glob("[!.]*.whl"))
    archive = tempfile.TemporaryFile()  # noqa: SIM115 the caller closes it
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in (_recipe(kind), *sorted(RECIPES.glob("*.py"))):
            tar.add(path, arcname=path.name, filter=plain)
        for package in packages:
            tar.add(package.resolve(), arcname=f"wheels/{package.name}", filter=plain)
    archive.seek(0)
    return archive


def _our_image(image: Mapping[str, Any], containers: int) -> OurImage:
    labels = image.get("Labels") or {}
    kind = str(labels.get(LABEL_KIND) or "host")
    return OurImage(
        id=str(image["Id"]),
        tags=tuple(tag for tag in image.get("RepoTags") or () if tag != "<none>:<none>"),
        kind=kind,
        owner=labels.get(hostconfig.LABEL_OWNER) if kind == "host" else None,
        orphan=is_gone(labels.get(hostconfig.LABEL_CREATOR, "")),
        created_s=int(image.get("Created") or 0),
        size_bytes=int(image.get("Size") or 0),
        containers=containers,
    )
