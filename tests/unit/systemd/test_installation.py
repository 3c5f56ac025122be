"""What an installation writes, and what it leaves alone; below a directory, with the system's commands written down."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.base.errors import ConfigError
from runner.cli import install
from runner.cli.installation import CONFIG, PREFIX, RELEASES, Host

RELEASE = f"{RELEASES}/1-a"
LINK = f"{PREFIX}/bin"


class Commands:
    """The system's commands: what was asked for, and what they answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.code = 0

    def __call__(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Note a command."""
        self.asked.append(" ".join(arguments))
        return subprocess.CompletedProcess(arguments, self.code, stdout="said\n")


@pytest.fixture(name="commands")
def _commands() -> Commands:
    return Commands()


@pytest.fixture
def host(tmp_path: Path, commands: Commands) -> Host:
    """A host with systemd."""
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    return Host(tmp_path, run=commands)


def test_a_release_is_put_with_all_that_belongs_to_it_and_removed(
    host: Host, commands: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Links, user, directories; again, nothing is written. What is the operator's stays, with the folders it is in."""
    before = host.release
    host.put(RELEASE)
    assert (before, host.release) == (None, RELEASE)
    assert str(host.at(LINK).readlink()) == f"{RELEASE}/bin"
    assert commands.asked == [
        "systemd-sysusers kernel-runner.conf",
        "systemd-tmpfiles --create kernel-runner.conf",
        "systemctl daemon-reload",
    ]
    assert capsys.readouterr().out.count("✓") == 2
    host.put(RELEASE)
    assert capsys.readouterr().out == ""
    host.file("/etc/x", b"mine")
    host.at(RELEASE).mkdir(parents=True)
    host.remove_release()
    assert {path.name for path in tmp_path.rglob("*")} == {"etc", "x", "opt", "run", "systemd", "system"}


@pytest.mark.parametrize("content", [b"", b"mine"])
def test_what_is_the_operators_is_never_written_over(host: Host, content: bytes) -> None:
    """Whatever is in a file, also nothing; a link that leads elsewhere is replaced, what is no link is not."""
    host.file("/etc/x", content, mode=0o600)
    host.file("/etc/x", b"ours")
    assert host.at("/etc/x").read_bytes() == content
    assert host.at("/etc/x").stat().st_mode & 0o777 == 0o600
    place = host.at(LINK)
    place.parent.mkdir(parents=True)
    place.symlink_to("/elsewhere")
    host.link(LINK, "/opt/x")
    assert str(place.readlink()) == "/opt/x"
    place.unlink()
    place.write_bytes(content)
    with pytest.raises(ConfigError, match="is there and no link: expected nothing, or a link"):
        host.link(LINK, "/opt/x")


def test_what_an_installation_was_given_and_leaves_out_is_said(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """A first attempt has written its own: the second, with mended options, must not seem to have taken them."""
    mistyped = ("postgresql://runner@db/kernelbt", Path("/opt/torch/bin/pyhton"))
    for address, python in (mistyped, mistyped, ("postgresql://runner@db/kernelbot", Path("/opt/torch/bin/python"))):
        assert capsys.readouterr().err == ""
        install._configure(host, address, python)
    said = capsys.readouterr().err
    assert "eval_python is /opt/torch/bin/pyhton: to change it, write /opt/torch/bin/python there" in said
    assert "credentials/database_url is there and stays, with another address: to change it" in said


@pytest.mark.parametrize("address", ["DATABASE_URL=postgresql://a/b", "'postgresql://a/b'", "postgresql://u:p@s@h/d"])
def test_an_address_that_cannot_be_parsed_is_not_written(tmp_path: Path, address: str) -> None:
    """What is written stays, so it is refused before."""
    file = tmp_path / "url"
    file.write_text(f"{address}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="the database's address cannot be parsed"):
        install._read_address(file)


@pytest.mark.parametrize("code", [0, 1])
def test_torchs_headers_are_precompiled_as_the_owner_of_the_environment(
    host: Host,
    commands: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    code: int,
) -> None:
    """Of that which the unit's drop-ins name, too. The installation goes on if that fails, and says so."""
    monkeypatch.setattr(Host, "command", lambda *_: f"A=1 KERNEL_RUNNER_EVAL_PYTHON={tmp_path}/eval/bin/python\n")
    python = tmp_path / "eval" / "bin" / "python"
    python.parent.mkdir(parents=True)
    host.file(CONFIG, b'eval_python = "/elsewhere"\n')
    commands.code, owner = code, python.parent.stat()
    install._precompile_headers(host)
    (asked,) = commands.asked
    assert asked.startswith(f"setpriv --reuid={owner.st_uid} --regid={owner.st_gid} --clear-groups {python} ")
    script, option = asked.split()[-2:]
    assert "precompiles" in Path(script).read_text(encoding="utf-8").lower()
    assert option == "--once"
    assert ("they are not:" in capsys.readouterr().err) == (code == 1)


#: What `systemctl cat` shows of the unit and a site's drop-ins.
_UNIT = """\
# /usr/lib/systemd/system/kernel-runner.service
[Unit]
After=docker.service
[Service]
Type=notify
ExecStart=/opt/kernel-runner/bin/kernel-runner serve
User=kernel-runner
WatchdogSec=20s
ProtectHome=yes
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
SetCredential=database_url:\\n
# /etc/systemd/system/kernel-runner.service.d/site.conf
[Service]
#Environment=KERNEL_RUNNER_LOG_LEVEL=debug
Environment = A=1 \\
    B=2
ProtectHome=read-only
ReadWritePaths=/data
IPAddressAllow=localhost
LoadCredential=client.key:/etc/kernel-runner/credentials/client.key
ExecStartPre=+/usr/bin/true
"""


def test_the_check_sees_what_the_daemon_will(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit's settings and then its drop-ins', in their order; what rules the service's life is not the check's."""
    ran: list[Sequence[str]] = []

    def run(arguments: Sequence[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        assert not check
        ran.append(arguments)
        return subprocess.CompletedProcess(arguments, 0)

    monkeypatch.setattr("subprocess.run", run)
    install._check(Host(tmp_path, run=lambda asked: subprocess.CompletedProcess(asked, 0, stdout=_UNIT)), "")
    (arguments,) = ran
    (name,) = (argument.removeprefix("--unit=") for argument in arguments if argument.startswith("--unit="))
    assert [value for option, value in itertools.pairwise(arguments) if option == "-p"] == [
        "User=kernel-runner",
        "ProtectHome=yes",
        "DevicePolicy=closed",
        "DeviceAllow=char-nvidia* rw",
        "SetCredential=database_url:\\n",
        "Environment=A=1      B=2",
        "ProtectHome=read-only",
        "ReadWritePaths=/data",
        "LoadCredential=client.key:/etc/kernel-runner/credentials/client.key",
        f"BindReadOnlyPaths=-/run/credentials/{name}:/run/credentials/kernel-runner.service",
    ]
