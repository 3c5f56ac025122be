"""`image`: build, list and remove the images that submissions are evaluated in.

Owns what of the configuration decides whether an image is still wanted. The engine's part is in `sandbox.images`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from runner.cli.app import app, example, note, out, out_json, session
from runner.cli.units import moment, size
from runner.config import Config
from runner.daemon.serve import daemon_owner, only_daemon
from runner.errors import ConfigError
from runner.gpus import Registry
from runner.model import Json
from sandbox.engine import host_root_reference
from sandbox.errors import EngineRefused, RootFilesystemError
from sandbox.hostroot import HostRoot
from sandbox.images import Images, OurImage, kinds, superseded

image = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Images: the root file systems that submissions run in."
)
app.add_typer(image, name="image")

_HOST = "host"


@image.command(
    "build",
    epilog=example(
        "kernel-runner image build cpu",
        "kernel-runner image build cuda --base nvidia/cuda:13.0.1-devel-ubuntu24.04 --tag kernels/cuda:13",
        "kernel-runner image build cpu --base my/python --wheels /srv/wheels --network none",
    ),
)
def build(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="cpu|cuda|rocm", help="Which recipe.")] = "cpu",
    *,
    base: Annotated[str | None, typer.Option("--base", help="Image to start from, instead of the recipe's.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Name of the result.  [default: kernel-runner/KIND]")] = None,
    wheels: Annotated[
        Path | None,
        typer.Option(
            "--wheels", exists=True, file_okay=False, help="Folder of wheels to install from; no index is asked then."
        ),
    ] = None,
    index: Annotated[str | None, typer.Option("--index", help="URL of the package index.")] = None,
    torch: Annotated[
        str | None, typer.Option("--torch", help="Version of torch, instead of the recipe's; '' leaves it out.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option("--network", help="Network of the build's steps: none, host or another."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build an evaluation image from a recipe of this release.

    The id that is printed names exactly this image in `image` of a GPU type, whatever becomes of the tag. Without a
    network: a base that has compiler and Python already, which is then left as it is, and --wheels.
    """
    if kind not in kinds():
        raise typer.BadParameter(f"{kind!r}, expected {', '.join(kinds())}", param_hint="cpu|cuda|rocm")
    if wheels is not None and not any(wheels.glob("*.whl")):
        filled = f"pip download --dest {wheels} torch numpy ninja setuptools"
        raise ConfigError(f"--wheels {wheels}: found no wheel in it, expected torch and what it needs: {filled}")
    arguments = {
        "BASE": base,
        "TORCH": torch,
        "PIP_INDEX_URL": index,
        # pip's name for "ask no index".
        "PIP_NO_INDEX": "1" if wheels is not None and index is None else None,
    }
    tag = tag or f"kernel-runner/{kind}"
    with _engine(session(context).config) as engine:
        found = engine.build(
            kind,
            tag=tag,
            arguments={name: value for name, value in arguments.items() if value is not None},
            wheels=wheels,
            network=network,
            say=note,
        )
    if as_json:
        out_json({"id": found, "tag": tag, "kind": kind})
    else:
        out(f"{tag} is {found}")


@image.command("list", epilog=example("kernel-runner image list", "kernel-runner image list --json"))
def list_images(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the engine's images of ours, newest first.

    Those that `image build` made, and the root file systems made of this host's own files (GPU types with image
    "host"); with the GPU types and the number of containers that use each.
    """
    config = session(context).config
    with _engine(config) as engine:
        wanted = _wanted(engine, Registry.load(config.gpus_dir))
        images = engine.ours()
    if as_json:
        out_json([_document(one, wanted) for one in images])
        return
    table = Table("id", "kind", "tags", "made (UTC)", "size", "used by", box=box.SIMPLE_HEAD)
    for one in images:
        users = [*wanted.get(one.id, ()), *([f"{one.containers} containers"] if one.containers else [])]
        made = moment(datetime.fromtimestamp(one.created_s, tz=UTC))
        table.add_row(
            _short(one), one.kind, ", ".join(one.tags) or "-", made, size(one.size_bytes), ", ".join(users) or "-"
        )
    out(table)


@image.command("prune", epilog=example("kernel-runner image prune --dry-run", "kernel-runner image prune"))
def prune(
    context: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove images of ours that nothing refers to.

    Builds that lost their tag to a newer one, what the steps of a build left, and root file systems that this host's
    files no longer make. What a GPU type names or a container uses stays, and so does everything that somebody else
    made. Not while a daemon serves: it may hold an image that no container shows.
    """
    config = session(context).config
    with _engine(config) as engine, _no_daemon(config, needed=not dry_run):
        images = superseded(
            engine.ours(),
            wanted=list(_wanted(engine, Registry.load(config.gpus_dir))),
            owners=lambda owner: owner == daemon_owner(config) or owner.startswith(f"{config.host_name}/"),
            current=_current_root(config),
        )
        gone = images if dry_run else [one for one in images if engine.remove(one)]
    if as_json:
        out_json({"removed": [] if dry_run else [one.id for one in gone], "found": [one.id for one in images]})
        return
    for one in images:
        said = "would be removed" if dry_run else ("removed" if one in gone else "stays: something uses it")
        out(f"{_short(one)} {one.kind} {size(one.size_bytes)}: {said}")
    out(f"{len(gone)} images {'would be ' if dry_run else ''}removed")


def _engine(config: Config) -> Images:
    return Images(config.docker_host, owner=f"{config.host_name}/image")


def _wanted(engine: Images, registry: Registry) -> dict[str, list[str]]:
    """GPU types by the id of the image they name, of those that the engine has."""
    found: dict[str, list[str]] = {}
    for entry in registry.all():
        if entry.image != _HOST:
            # A type whose image is not there, or cannot be used, keeps nothing from going.
            with suppress(EngineRefused):
                found.setdefault(engine.image_id(entry.image), []).append(entry.name)
    return found


def _current_root(config: Config) -> str | None:
    """The tag of the root file system that this host's files make today; None without an evaluation environment."""
    if config.eval_python is None:
        return None
    with suppress(RootFilesystemError):
        return host_root_reference(HostRoot(eval_python=config.eval_python))
    return None


@contextmanager
def _no_daemon(config: Config, *, needed: bool) -> Iterator[None]:
    """Keep this host's daemon from starting meanwhile.

    Raises:
        ConfigError: it runs.
    """
    if not needed or not config.state_dir.is_dir():
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(only_daemon(config.state_dir))
        except ConfigError as error:
            hint = "a serving daemon may hold an image that no container shows; stop the daemon first, or use --dry-run"
            raise ConfigError(f"nothing is pruned: {error} ({hint})") from error
        yield


def _short(one: OurImage) -> str:
    return one.id.removeprefix("sha256:")[:12]


def _document(one: OurImage, wanted: Mapping[str, Sequence[str]]) -> Json:
    return {
        "id": one.id,
        "kind": one.kind,
        "tags": list(one.tags),
        "owner": one.owner,
        "created": datetime.fromtimestamp(one.created_s, tz=UTC).isoformat(),
        "size_bytes": one.size_bytes,
        "gpu_types": list(wanted.get(one.id, ())),
        "containers": one.containers,
    }
