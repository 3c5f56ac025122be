"""`image`: build, check, list and remove the images that submissions are evaluated in.

Owns what of the configuration decides whether an image is still wanted. The engine's part is in `sandbox.host.images`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from runner.cli.app import ExitCode, app, example, note, out, out_json, session
from runner.cli.finding import render as render_finding
from runner.cli.finding import verdict_of
from runner.cli.image_check import examine
from runner.cli.render import make_table
from runner.config import Config
from runner.daemon.serve import daemon_owner, only_daemon
from runner.errors import ConfigError
from runner.gpu_types import Registry
from runner.marks import visible
from runner.model import Json
from runner.units import moment, size
from sandbox.errors import EngineRefused, RootFilesystemError
from sandbox.host.engine import host_root_reference
from sandbox.host.hostroot import HostRoot
from sandbox.host.images import Images, OurImage, kinds, superseded

image = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Images: the root file systems that submissions run in."
)
app.add_typer(image, name="image")

_HOST = "host"


@image.command(
    "build",
    epilog=example(
        "kernel-runner image build cuda --base nvidia/cuda:13.0.2-devel-ubuntu24.04 --tag kernels/cuda:13",
        "kernel-runner image build cpu --base my/python:3.11 --wheels wheels --network none",
    ),
)
def build(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="cpu|cuda|rocm")] = "cpu",
    *,
    base: Annotated[
        str | None, typer.Option("--base", metavar="REF", help="Image to start from.", show_default="the recipe's")
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="NAME", help="Name of the result.", show_default="kernel-runner/KIND")
    ] = None,
    wheels: Annotated[
        Path | None,
        typer.Option(
            "--wheels",
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Install these wheels; ask no index.",
        ),
    ] = None,
    index: Annotated[str | None, typer.Option("--index", metavar="URL", help="Package index.")] = None,
    extra_index: Annotated[
        str | None, typer.Option("--extra-index", metavar="URL", help="Package index besides the usual one.")
    ] = None,
    packages: Annotated[
        str | None,
        typer.Option(
            "--packages",
            metavar="NAMES",
            help="Packages besides torch; '' leaves them and the CUTLASS headers out.",
            show_default="the recipe's",
        ),
    ] = None,
    torch: Annotated[
        str | None,
        typer.Option(
            "--torch", metavar="VERSION", help="Version of torch; '' leaves it out.", show_default="the recipe's"
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option("--network", metavar="NAME", help="Network of the build: none, host or another."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build an evaluation image from a recipe of this release (`sandbox/image`).

    Prints the image's id. As `image` of a GPU type (docs/adding-a-gpu-type.md) it names this image even when the tag
    moves.

    Without a network: a base with compiler, Python, its headers and venv is used as it is. Fill the folder elsewhere,
    for the base's Python: `pip download --dest wheels --only-binary=:all: --python-version 3.11 torch numpy ninja
    setuptools`. The recipe `cuda` also needs the packages that its file names, and nvidia-cutlass, or `--packages ''`.
    """
    if kind not in kinds():
        raise typer.BadParameter(f"{kind!r}, expected {', '.join(kinds())}", param_hint="cpu|cuda|rocm")
    if wheels is not None and not visible(wheels, ".whl"):
        filled = f"pip download --dest {wheels} torch numpy ninja setuptools"
        raise ConfigError(f"--wheels {wheels}: found no wheel in it, expected torch and what it needs: {filled}")
    arguments = {
        "BASE": base,
        "TORCH": torch,
        "PACKAGES": packages,
        "CUTLASS": "" if kind == "cuda" and packages == "" else None,
        "PIP_INDEX_URL": index,
        "PIP_EXTRA_INDEX_URL": extra_index,
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


@image.command(
    "check",
    epilog=example(
        "kernel-runner image check kernel-runner/cuda --gpu H100",
        "kernel-runner image check --gpu CPU",
    ),
)
def check_image(
    context: typer.Context,
    reference: Annotated[
        str | None, typer.Argument(metavar="IMAGE", help="Image, or `host`.", show_default="that of --gpu")
    ] = None,
    *,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="T", help="GPU type that the image is for.", show_default="those that name it"),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PATH", help="Interpreter in the image.", show_default="`image_python` of the type"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what submissions will find in an image.

    Starts a container as for a submission, with all its protections but without devices, on the last core. Shows
    Python, torch and its CUDA or ROCm, compilers, Triton, CUTLASS, other packages and profilers, and for a GPU type
    whether torch and compiler know its architecture.

    Without --gpu it is judged for each type that names the image, or if none does as for CPUs. Exits with 1 if
    submissions cannot run in it (no Python 3.11, no torch, another vendor's torch), 3 without an engine.
    """
    config = session(context).config
    registry = Registry.load(config.gpus_dir)
    if reference is None and gpu is None:
        raise ConfigError("image check: found neither IMAGE nor --gpu, expected one of them at least")
    if gpu is not None:
        types = [registry.get(gpu)]
    else:
        types = [entry for entry in registry.all() if entry.image == reference != _HOST] or [registry.get("CPU")]
    results = []
    with _engine(config) as engine:
        for entry in types:
            found, answer = examine(engine, config, reference or entry.image, python or entry.image_python, entry)
            results.append((entry, found, answer))
            if not as_json:
                out(f"{reference or entry.image} for {entry.name}")
                for finding in found:
                    out(render_finding(finding))
    code = verdict_of([finding for _, found, _ in results for finding in found])
    if as_json:
        checked = [
            {"gpu_type": entry.name, "found": answer, "checks": [finding.to_json() for finding in found]}
            for entry, found, answer in results
        ]
        out_json({"ok": code is ExitCode.OK, "image": reference or types[0].image, "checked": checked})
    raise typer.Exit(code)


@image.command("list", epilog=example("kernel-runner image list"))
def list_images(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the engine's images that kernel-runner made, newest first.

    Kind `host` is a root file system of this host's own files. Shows the GPU types and containers that use each.
    """
    config = session(context).config
    with _engine(config) as engine:
        wanted = _wanted(engine, Registry.load(config.gpus_dir))
        images = engine.ours()
    if as_json:
        out_json([_document(one, wanted) for one in images])
        return
    table = make_table("id", "kind", "tags", "made (UTC)", "size", "used by")
    for one in images:
        users = [*wanted.get(one.id, ()), *([f"{one.containers} containers"] if one.containers else [])]
        made = moment(datetime.fromtimestamp(one.created_s, tz=UTC))
        table.add_row(
            _short(one), one.kind, ", ".join(one.tags) or "-", made, size(one.size_bytes), ", ".join(users) or "-"
        )
    out(table)


@image.command("prune", epilog=example("kernel-runner image prune --dry-run"))
def prune(
    context: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove images that kernel-runner made and nothing refers to.

    These are builds whose name went to a newer one, remains of build steps, and root file systems of changed host
    files. An image that a GPU type names or a container uses stays, and so do images of others. Refused while a daemon
    serves with the same `state_dir`: it may hold an image that no container shows.
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
