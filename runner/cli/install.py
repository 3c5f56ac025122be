"""`install`, `upgrade`, `uninstall`: a host becomes one that evaluates, gets another release, or is as it was before.

Owns the order of the steps and what happens when the new release does not start. The scripts of the Debian package run
`upgrade` and `uninstall`. `runner.cli.installation` knows the files and their places.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

import sandbox
from runner.base.config import Config
from runner.base.environment import process_environment
from runner.base.errors import ConfigError, InfrastructureError
from runner.base.marks import ENCODING
from runner.cli.app import ExitCode, Session, app, example, load_config, note
from runner.cli.installation import (
    CONFIG,
    DATABASE_URL,
    DISCORD_UNIT,
    GATEWAY_SOCKET,
    GATEWAY_UNIT,
    RELEASES,
    SITE,
    UNIT,
    WEBHOOKS_UNIT,
    Host,
    own_release,
    shipped,
)
from runner.cli.migrate import bring_up_to_date
from runner.store.session import checked
from sandbox.errors import SandboxError
from sandbox.host.engine import DockerEngine

#: How long a daemon may take from its start to a word about what it waits for.
_START_S: Final = 120.0
_LOOK_S: Final = 0.2
_HEADERS: Final = Path(sandbox.__path__[0], "image", "torch_headers.py")
#: Settings of a unit that say what a process of it sees. ProtectClock= alone would hide all devices but clocks.
#: Not IPAddressAllow=: systemd-run knows no names of networks, such as localhost.
_SURROUNDINGS: Final = re.compile(
    r"\s*(User|Group|SupplementaryGroups|\w*Environment\w*|\w*Credential\w*|StateDirectory\w*|Protect\w+|Private\w+|"
    r"Device\w+|\w+Paths|Bind\w+|TemporaryFileSystem|NoNewPrivileges)\s*=\s*(.*?)\s*"
)
_NEXT: Final = (
    "next: sudo kernel-runner install, which writes the configuration and starts the daemon; on a new host with "
    "--database-url-file FILE --eval-python PATH, for a new database also with --migrate"
)


@app.command(
    epilog=example("sudo kernel-runner install --database-url-file url --eval-python /opt/torch/bin/python --migrate")
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
        typer.Option("--eval-python", metavar="PATH", help="Evaluation environment for a new configuration."),
    ] = None,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Also do what `migrate` does, as the schema's owner.")
    ] = False,
    no_start: Annotated[bool, typer.Option("--no-start", help="Neither check nor start.")] = False,
) -> None:
    """Set this host up and start the daemon.

    Run as root after the Debian package is installed. Writes configuration and credential
    (docs/operations.md#installing-a-host), runs `check` under systemd as the unit and its drop-ins say, precompiles
    torch's headers where the evaluation environment has none, and starts the service. It can be repeated and never
    overwrites your files.

    Exits with 1 if the check fails: correct it and install again; 2 if the host is not suitable; 3 if the service does
    not start.
    """
    host = _host()
    # A package is also installed into images, where nothing is started.
    if not host.booted:
        raise ConfigError(
            "systemd does not run on this host: found no /run/systemd/system. Run `kernel-runner serve` under the "
            "service manager that there is"
        )
    if eval_python is not None and not eval_python.is_absolute():
        raise ConfigError(f"--eval-python {str(eval_python)!r}: expected an absolute path")
    address = _read_address(database_url_file)
    _configure(host, address, eval_python)
    host.command("systemctl", "enable", UNIT)
    if migrate:
        applied = bring_up_to_date(Session(host.at(CONFIG)))
        typer.echo(f"✓ the database is up to date ({len(applied)} versions applied)")
    if no_start:
        return
    _check(host, f"nothing is started; correct what the check names and install again, or systemctl start {UNIT}")
    _precompile_headers(host)
    if not host.asks("systemctl", "is-active", "--quiet", UNIT):
        trouble = _restart(host)
        if trouble is not None:
            raise InfrastructureError(f"the daemon does not start: {trouble} (journalctl -u {UNIT})")


@app.command(hidden=True)
def upgrade() -> None:
    """Let this release take the place of the one that is in use. The Debian package's postinst calls it.

    If its check of the host fails, nothing is changed. The daemon restarts after its current runs; one that is stopped
    stays so, for a migration. Other services that run restart. The release before is kept, and put back if the new one
    does not start.
    """
    host = _host()
    before, own = host.release, str(own_release())
    stopped = not host.booted or _shown(host)["ActiveState"] in ("inactive", "failed")
    replaces = before not in (None, own)
    if replaces and not stopped:
        again = "dpkg --configure kernel-runner"
        _check(host, f"the daemon goes on with {before}; correct what the check names, then `{again}`")
    host.put(own)
    releases = {f"{RELEASES}/{path.name}" for path in host.at(RELEASES).glob("*")}
    host.remove(*sorted(releases - {before, own}))
    if before is None or not host.at(CONFIG).exists():
        note(_NEXT)
    elif stopped:
        note(f"{UNIT} is stopped and stays so; systemctl start {UNIT}")
    if not host.booted or not replaces:
        return
    trouble = None if stopped else _restart(host)
    if trouble is None:
        # Those that run, also where no daemon does. A submission that the gateway has accepted does not notice.
        host.asks("systemctl", "try-restart", "--no-block", GATEWAY_UNIT, DISCORD_UNIT, WEBHOOKS_UNIT)
        return
    host.use(str(before))
    host.command("systemctl", "restart", "--no-block", UNIT)
    raise InfrastructureError(f"{own} does not start: {trouble}; {before} was put back (journalctl -u {UNIT})")


@app.command(hidden=True)
def uninstall() -> None:
    """Remove every release. The Debian package's prerm calls it.

    The daemon finishes its runs; its images and containers are removed.
    """
    host = _host()
    if host.booted:
        for units in ((UNIT,), (GATEWAY_SOCKET, GATEWAY_UNIT), (DISCORD_UNIT,), (WEBHOOKS_UNIT,)):
            host.command("systemctl", "disable", "--now", "--no-reload", *units)
    _remove_images(host)
    # The files of this program: what follows must have been imported.
    host.remove_release()


# -- the parts ---------------------------------------------------------------------------------------------------------


def _host() -> Host:
    if os.geteuid() != 0:
        raise ConfigError("only root may install: use sudo")
    if str(own_release().parent) != RELEASES:
        raise ConfigError(
            f"this is {own_release()}, expected the release of the Debian package below {RELEASES}: "
            "apt-get install ./dist/kernel-runner_*.deb (`make package`)"
        )
    return Host()


def _configure(host: Host, address: str | None, eval_python: Path | None) -> None:
    """Write what is the operator's from then on."""
    config = shipped("config.toml").decode("utf-8")
    if eval_python is not None:
        config = _with_eval_python(config, eval_python)
    host.file(CONFIG, config.encode())
    if eval_python is not None and (stays := _config(host).eval_python) != eval_python:
        note(f"{CONFIG} is there and stays; its eval_python is {stays}: to change it, write {eval_python} there")
    host.file(SITE, shipped("site.conf"))
    if address is not None:
        host.file(DATABASE_URL, f"{address}\n".encode(), mode=0o600)
        if host.at(DATABASE_URL).read_text(encoding="utf-8").strip() != address:
            note(
                f"{DATABASE_URL} is there and stays, with another address: to change it, write the new one there, and "
                f"systemctl restart {UNIT}"
            )


def _with_eval_python(config: str, path: Path) -> str:
    """A configuration that names this interpreter: a text of JSON is one of TOML, but for the delete character."""
    quoted = json.dumps(str(path)).replace("\x7f", r"\u007f")
    return re.sub(r'(?m)^eval_python = ".*"$', lambda _: f"eval_python = {quoted}", config)


def _read_address(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        address = data.decode(ENCODING).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--database-url-file {path}: cannot be read: {error}") from error
    if not address or "\n" in address:
        raise ConfigError(f"--database-url-file {path}: expected one line, e.g. postgresql://runner@db/kernelbot")
    # What is written stays.
    checked(address)
    return address


def _check(host: Host, otherwise: str) -> None:
    """`check` of this release, with what the unit and the site's drop-ins give the daemon.

    Raises:
        typer.Exit: it has found something, and `otherwise` was said.
    """
    unit = host.command("systemctl", "cat", UNIT).replace("\\\n", " ")
    properties = [f"{line[1]}={line[2]}" for line in map(_SURROUNDINGS.fullmatch, unit.splitlines()) if line]
    name = f"kernel-runner-check-{os.getpid()}.service"
    if any("Credential" in value and "=database_url:" not in value for value in properties):
        # An address names a client's key where the daemon has it.
        properties.append(f"BindReadOnlyPaths=-/run/credentials/{name}:/run/credentials/{UNIT}")
    options = [f"--unit={name}", *(option for value in properties for option in ("-p", value))]
    command = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec", *options]
    try:
        done = subprocess.run([*command, str(own_release() / "bin" / "kernel-runner"), "check"], check=False)
    except FileNotFoundError as error:
        raise InfrastructureError("systemd-run is not on PATH: expected a Linux host with systemd") from error
    if done.returncode != ExitCode.OK:
        note(otherwise)
        raise typer.Exit(done.returncode)


def _config(host: Host) -> Config:
    """The daemon's configuration, with the variables that its unit and drop-ins set."""
    shown = host.command("systemctl", "show", "--property=Environment", "--value", UNIT) if host.booted else ""
    variables = dict(pair.split("=", 1) for pair in shlex.split(shown) if "=" in pair)
    path = host.at(CONFIG)
    return load_config(path if path.exists() else None, environ={**process_environment(), **variables})


def _precompile_headers(host: Host) -> None:
    """Precompile torch's headers as the owner of the evaluation environment. Without them compiling takes longer."""
    python = _config(host).eval_python
    if python is None or shutil.which("c++") is None:
        return
    note("precompiling torch's headers, which takes minutes the first time")
    owner = python.parent.stat()
    account = (f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups")
    if not host.asks("setpriv", *account, str(python), str(_HEADERS), "--once"):
        note(f"they are not: submissions compile slowly; `{python} {_HEADERS}` says why")


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


def _remove_images(host: Host) -> None:
    """Containers and root file systems of this host's daemon and of its checks go; images that you have built stay."""
    try:
        config = _config(host)
        for owner in (f"{config.host_name}:{config.state_dir}", f"{config.host_name}/check"):
            with DockerEngine(config.docker_host, owner=owner) as engine:
                engine.reap()
                engine.prune_host_roots(keep=())
    except (ConfigError, InfrastructureError, SandboxError) as error:
        note(f"the engine could not be asked to remove this daemon's images: {error}")
