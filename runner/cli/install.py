"""`install`, `upgrade`, `uninstall`: a host becomes one that evaluates, gets another release, or is as it was before.

Owns the order of the steps and what happens when the new release does not start. What a step is, and whose files are
never touched, is `runner.cli.installation`'s business.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from runner.cli.app import ExitCode, app, direct_url, example, note
from runner.cli.installation import (
    CONFIG,
    DATABASE_URL,
    EVALUATION,
    GATEWAY_SOCKET,
    GATEWAY_UNIT,
    KEPT,
    LINKS,
    PREFIX,
    SITE,
    UNIT,
    USER,
    VENDOR,
    Host,
    Step,
    own_release,
    perform,
    shipped,
    tasks_folder,
    user_exists,
)
from runner.config import Config
from runner.errors import ConfigError, InfrastructureError
from runner.store import migrate as apply_migrations
from sandbox.errors import SandboxError
from sandbox.host.engine import load_sdk
from sandbox.host.images import Images

#: How long a daemon may take from its start to a word about what it waits for.
_START_S: Final = 120.0
_LOOK_S: Final = 0.2
#: What an evaluation environment has at the least.
_EVALUATION: Final = ("torch", "numpy", "ninja", "setuptools")

_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the steps.")]
_NoStart = Annotated[bool, typer.Option("--no-start", help="Neither check nor start.")]
_Migrate = Annotated[bool, typer.Option("--migrate", help="Also create or update the schema, as its owner.")]


@app.command(
    epilog=example(
        "sudo dist/kernel-runner install --database-url-file url --eval-python /opt/torch/bin/python --migrate"
    )
)
def install(
    *,
    database_url_file: Annotated[
        Path | None,
        typer.Option(
            "--database-url-file",
            metavar="FILE",
            help="File with one line, the database's address; `-` is stdin. As an argument, every user could read it.",
        ),
    ] = None,
    eval_python: Annotated[
        Path | None,
        typer.Option(
            "--eval-python",
            metavar="PATH",
            help="Evaluation environment for a new configuration.",
        ),
    ] = None,
    eval_wheels: Annotated[
        Path | None,
        typer.Option(
            "--eval-wheels",
            metavar="FOLDER",
            help="Make `/opt/kernel-runner/eval` from wheels (torch, numpy, ninja, setuptools).",
        ),
    ] = None,
    migrate: _Migrate = False,
    no_start: _NoStart = False,
    dry_run: _DryRun = False,
) -> None:
    """Install the release on this host and start the daemon.

    Run as root from the folder that `make package` made. Makes user, groups, units, configuration and credential
    (docs/operations.md#installing-a-host), runs `check` as the daemon's user under systemd, and starts the service. It
    can be repeated and never overwrites your files.

    Exits with 1 if the check fails: correct it and install again; 2 if another release is installed or the host is not
    suitable; 3 if the service does not start.
    """
    host = _host(dry_run=dry_run)
    if host.release not in (None, str(own_release())):
        raise ConfigError(
            f"{host.release} is installed on this host, found {own_release()}: expected the same release. Use "
            "`upgrade` to replace it"
        )
    if eval_python is not None and eval_wheels is not None:
        raise ConfigError("--eval-python and --eval-wheels are two ways to one environment: expected one of them")
    address = _read_address(database_url_file)
    steps = [*_release_steps(host), *_operator_steps(host, address, eval_python)]
    if eval_wheels is not None:
        steps.append(_evaluation_step(host, eval_wheels))
    if address is not None and not _same_address(host, address):
        note(f"{DATABASE_URL} is there and stays; see docs/operations.md on how to change a password")
    perform([*steps, _enable_step(host)], dry_run=dry_run, say=typer.echo)
    if dry_run:
        return
    if migrate:
        _migrate(host)
    if no_start:
        return
    raise typer.Exit(_check_and_start(host))


@app.command(epilog=example("sudo dist/kernel-runner upgrade"))
def upgrade(*, migrate: _Migrate = False, no_start: _NoStart = False, dry_run: _DryRun = False) -> None:
    """Replace the release on this host by this one.

    Run as root from the folder of the new release. If its check of the host fails, nothing is changed. The daemon
    restarts after its current runs. The release before is kept, and put back if the new one does not start; older ones
    are removed. With --migrate the daemon stops before the schema is updated, and there is no way back
    (docs/operations.md#upgrading).
    """
    host = _host(dry_run=dry_run)
    before = host.release
    if before is None:
        raise ConfigError(f"nothing is installed below {PREFIX}: expected a release; use `install`")
    steps = _release_steps(host)
    if dry_run:
        perform([*steps, *_old_releases(host, keep=(before, str(own_release())))], dry_run=True, say=typer.echo)
        return
    if migrate:
        host.command("systemctl", "stop", UNIT)
        perform(steps, dry_run=False, say=typer.echo)
        _migrate(host)
    elif not no_start:
        code = _check(host)
        if code != ExitCode.OK:
            note(f"nothing was changed; {before} goes on. Correct what the check names, or migrate (--migrate)")
            raise typer.Exit(code)
        perform(steps, dry_run=False, say=typer.echo)
    else:
        perform(steps, dry_run=False, say=typer.echo)
    perform(_old_releases(host, keep=(before, str(own_release()))), dry_run=False, say=typer.echo)
    if no_start:
        return
    trouble = _restart(host)
    if trouble is None:
        # Where it runs. A submission that it has accepted does not notice.
        host.asks("systemctl", "try-restart", "--no-block", GATEWAY_UNIT)
        return
    if not migrate and before != str(own_release()):
        perform(_links(host, before), dry_run=False, say=typer.echo)
        host.command("systemctl", "restart", "--no-block", UNIT)
        trouble = f"{trouble}; {before} was put back"
    raise InfrastructureError(f"{own_release()} does not start: {trouble} (journalctl -u {UNIT})")


@app.command(epilog=example("kernel-runner uninstall --dry-run"))
def uninstall(
    *,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Remove these too; refused while results wait for the database."),
    ] = False,
    discard_results: Annotated[
        bool, typer.Option("--discard-results", help="With --purge: remove waiting results too.")
    ] = False,
    dry_run: _DryRun = False,
) -> None:
    """Remove the release from this host.

    The daemon finishes its runs; its images and containers are removed. Configuration, credentials, drop-ins, state,
    evaluation environment and user stay, unless --purge is given.
    """
    host = _host(dry_run=dry_run)
    waiting = _waiting_results(host)
    if purge and waiting and not discard_results:
        raise ConfigError(
            f"{waiting} results wait in /var/lib/kernel-runner/spool for the database: expected none. Start the daemon "
            "with a database that takes them, or give --discard-results"
        )
    # Before the files that say who the owner of the images is, and those of this program.
    config = _config(host)
    load_sdk()
    steps = [
        Step(
            what=f"stop and disable {UNIT}",
            needed=lambda: host.at(VENDOR[UNIT]).exists(),
            do=lambda: host.command("systemctl", "disable", "--now", "--no-reload", UNIT),
        ),
        Step(
            what=f"stop and disable {GATEWAY_UNIT}",
            needed=lambda: host.at(VENDOR[GATEWAY_UNIT]).exists(),
            do=lambda: host.command("systemctl", "disable", "--now", "--no-reload", GATEWAY_SOCKET, GATEWAY_UNIT),
        ),
        *(host.remove(path) for path in LINKS),
        *(host.remove_vendor_file(path, say=typer.echo) for path in VENDOR.values()),
        host.remove(f"{PREFIX}/releases"),
    ]
    if purge:
        steps += [
            *(host.remove(path) for path in KEPT),
            Step(
                what=f"remove user {USER}",
                needed=lambda: host.record.made_user and user_exists(),
                do=lambda: host.command("userdel", USER),
            ),
        ]
    steps.append(host.remove_directories())
    perform(steps, dry_run=dry_run, say=typer.echo)
    if not dry_run:
        host.tell_systemd()
        _remove_images(config)
    for path in () if purge else KEPT:
        if host.at(path).exists():
            note(f"{path} stays; --purge removes it")


# -- the parts ---------------------------------------------------------------------------------------------------------


def _host(*, dry_run: bool) -> Host:
    if os.geteuid() != 0 and not dry_run:
        raise ConfigError("only root may install: use sudo, or --dry-run to see what would be done")
    host = Host()
    if not dry_run and not Path("/run/systemd/system").is_dir():
        raise ConfigError(
            "systemd does not run on this host: found no /run/systemd/system. Run `kernel-runner serve` under the "
            "service manager that there is"
        )
    return host


def _links(host: Host, release: str) -> list[Step]:
    """The links into a release."""
    found = sorted(Path(release).glob("lib/python3*/site-packages/tasks"))
    # A checkout has its tasks elsewhere.
    targets = {"tasks": str(found[0] if found else tasks_folder())}
    return [host.link(path, targets.get(inside, f"{release}/{inside}")) for path, inside in LINKS.items()]


def _release_steps(host: Host) -> list[Step]:
    """What an upgrade replaces."""
    return [
        *_links(host, str(own_release())),
        *(host.vendor_file(path, shipped(name), say=typer.echo) for name, path in VENDOR.items()),
        *host.user(),
        Step(
            what="directories of the configuration",
            needed=lambda: not host.at(DATABASE_URL).parent.is_dir(),
            do=lambda: host.command("systemd-tmpfiles", "--create", VENDOR["kernel-runner.tmpfiles"]),
        ),
        Step(
            what="systemd knows the units",
            needed=lambda: (
                not host.asks("systemctl", "cat", UNIT)
                or "NeedDaemonReload=no" not in host.command("systemctl", "show", "-p", "NeedDaemonReload", UNIT)
            ),
            do=host.tell_systemd,
        ),
    ]


def _operator_steps(host: Host, address: str | None, eval_python: Path | None) -> list[Step]:
    """What is written once and is the operator's from then on."""
    config = shipped("config.toml").decode("utf-8")
    if eval_python is not None:
        if not eval_python.is_absolute():
            raise ConfigError(f"--eval-python {str(eval_python)!r}: expected an absolute path")
        config = re.sub(r'(?m)^eval_python = ".*"$', lambda _: f'eval_python = "{eval_python}"', config)
    steps = [host.own_file(CONFIG, config.encode()), host.own_file(SITE, shipped("site.conf"))]
    if address is not None:
        steps.append(host.own_file(DATABASE_URL, f"{address}\n".encode(), mode=0o600))
    return steps


def _evaluation_step(host: Host, wheels: Path) -> Step:
    """An evaluation environment from a folder of wheels, without a network."""
    if not list(wheels.glob("*.whl")):
        raise ConfigError(f"{wheels}: found no wheel in it, expected {', '.join(_EVALUATION)} and what they need")
    place = host.at(EVALUATION)
    python = place / "bin" / "python"

    def do() -> None:
        # The interpreter that releases are made with, not the release's own environment.
        host.command(str(Path(sys.executable).resolve()), "-m", "venv", "--clear", str(place))
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index")
        host.command(str(python), *pip, "--find-links", str(wheels), *_EVALUATION)
        (place / ".complete").touch()

    return Step(what=f"evaluation environment {EVALUATION}", needed=lambda: not (place / ".complete").exists(), do=do)


def _enable_step(host: Host) -> Step:
    return Step(
        what=f"{UNIT} starts with the host",
        needed=lambda: not host.asks("systemctl", "is-enabled", "--quiet", UNIT),
        do=lambda: host.command("systemctl", "enable", UNIT),
    )


def _old_releases(host: Host, *, keep: Sequence[str]) -> list[Step]:
    found = sorted(host.at(f"{PREFIX}/releases").glob("*"))
    return [host.remove(str(path)) for path in found if str(path) not in keep]


def _read_address(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        address = (sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--database-url-file {path}: cannot be read: {error}") from error
    if not address or "\n" in address:
        raise ConfigError(f"--database-url-file {path}: expected one line, e.g. postgresql://runner@db/kernelbot")
    return address


def _same_address(host: Host, address: str) -> bool:
    place = host.at(DATABASE_URL)
    return not place.exists() or place.read_text(encoding="utf-8").strip() == address


def _config(host: Host) -> Config:
    path = host.at(CONFIG)
    return Config.load(path if path.exists() else None)


def _migrate(host: Host) -> None:
    applied = apply_migrations(direct_url(_config(host)))
    typer.echo(f"✓ the database is up to date ({len(applied)} versions applied)")


def _check_and_start(host: Host) -> int:
    code = _check(host)
    if code != ExitCode.OK:
        note(f"the daemon is not started; correct what the check names and install again, or systemctl start {UNIT}")
        return code
    if not host.asks("systemctl", "is-active", "--quiet", UNIT):
        trouble = _restart(host)
        if trouble is not None:
            raise InfrastructureError(f"the daemon does not start: {trouble} (journalctl -u {UNIT})")
    return ExitCode.OK


def _check(host: Host) -> int:
    """`check` of this release, as the daemon's user and with what the unit gives it."""
    properties = [f"User={USER}", f"Group={USER}", f"StateDirectory={USER}", "StateDirectoryMode=0755"]
    properties += ["PrivateTmp=yes", "ProtectHome=yes", "NoNewPrivileges=yes"]
    if host.at(DATABASE_URL).exists():
        properties.append(f"LoadCredential=database_url:{DATABASE_URL}")
    options = [option for value in properties for option in ("-p", value)]
    command = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec", *options]
    try:
        done = subprocess.run([*command, str(own_release() / "bin" / "kernel-runner"), "check"], check=False)
    except FileNotFoundError as error:
        raise InfrastructureError("systemd-run is not on PATH: expected a Linux host with systemd") from error
    return done.returncode


def _restart(host: Host) -> str | None:
    """Start the daemon, or let it finish its runs and start it anew; why that failed, or None."""
    before = _shown(host)
    host.command("systemctl", "restart", "--no-block", UNIT)
    until_s = time.monotonic() + _START_S
    while True:
        time.sleep(_LOOK_S)
        now = _shown(host)
        status = now.get("StatusText", "")
        if now["ActiveState"] == "deactivating" or (now["MainPID"] == before["MainPID"] != "0"):
            # It finishes its runs: that takes as long as they do.
            until_s = time.monotonic() + _START_S
        elif now["ActiveState"] == "active":
            typer.echo(f"✓ {UNIT}: {status}")
            return None
        elif now["SubState"] in ("auto-restart", "failed") or now["NRestarts"] not in ("0", before["NRestarts"]):
            host.command("systemctl", "stop", UNIT)
            return f"it ended with {now['Result']}"
        elif status.startswith("not ready: waiting"):
            typer.echo(f"! {UNIT}: {status}; it goes on by itself when that is there")
            return None
        elif time.monotonic() > until_s:
            return f"no sign of life within {_START_S:.0f} s"


def _shown(host: Host) -> dict[str, str]:
    names = ("ActiveState", "SubState", "MainPID", "NRestarts", "Result", "StatusText")
    lines = host.command("systemctl", "show", *(f"--property={name}" for name in names), UNIT).splitlines()
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def _waiting_results(host: Host) -> int:
    folder = host.at("/var/lib/kernel-runner/spool")
    return sum(1 for path in folder.glob("*") if path.is_file()) if folder.is_dir() else 0


def _remove_images(config: Config) -> None:
    """Containers and root file systems of this host's daemon and of its checks go; images that you have built stay."""
    owners = (f"{config.host_name}:{config.state_dir}", f"{config.host_name}/check")
    try:
        for owner in owners:
            with Images(config.docker_host, owner=owner) as engine:
                engine.reap()
                for image in engine.ours():
                    if image.owner == owner:
                        engine.remove(image)
    except SandboxError as error:
        note(f"the engine could not be asked to remove this daemon's images: {error}")


__all__ = ["install", "uninstall", "upgrade"]
