"""The order of an upgrade, and the way back; below a directory, with a service manager that plays a script."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import typer

from runner.cli import install, main
from runner.cli.installation import CONFIG, PREFIX, Host

OLD, NEW = f"{PREFIX}/releases/1-a", f"{PREFIX}/releases/2-b"
OTHERS = (
    "systemctl try-restart --no-block kernel-runner-gateway.service kernel-runner-discord.service"
    " kernel-runner-webhooks.service"
)
Script = Iterator[dict[str, str]]


def service(state: str, pid: int, *, sub: str = "", restarts: int = 0, status: str = "") -> dict[str, str]:
    """What systemd shows of the service."""
    return {
        "ActiveState": state,
        "SubState": sub or state,
        "MainPID": str(pid),
        "NRestarts": str(restarts),
        "Result": "success" if not restarts else "exit-code",
        "StatusText": status,
    }


RESTART = "systemctl restart --no-block kernel-runner.service"
#: Before and after the check.
RUNNING = [service("active", 7)] * 2


class Manager:
    """Answers `systemctl show` from a script; everything else works and is noted."""

    def __init__(self) -> None:
        self.script: Script = iter(())
        self.asked: list[str] = []

    def __call__(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Note a command, and answer it."""
        said = ""
        if arguments[:2] == ("systemctl", "show"):
            said = "\n".join(f"{key}={value}" for key, value in next(self.script).items())
        elif arguments[0] == "systemctl" and arguments[1] != "daemon-reload":
            self.asked.append(" ".join(arguments))
        return subprocess.CompletedProcess(arguments, 0, stdout=said)


@pytest.fixture
def manager() -> Manager:
    """The service manager."""
    return Manager()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: Manager) -> Host:
    """A host with a release, on which a process of the next one runs; its check finds nothing wrong."""
    (tmp_path / "opt/kernel-runner/releases/0-x").mkdir(parents=True)
    (tmp_path / "opt/kernel-runner/releases/1-a").mkdir()
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    made = Host(tmp_path, run=manager)
    made.use(OLD)
    made.file(CONFIG, b"")
    monkeypatch.setattr(install, "Host", lambda: made)
    monkeypatch.setattr(install, "own_release", lambda: Path(NEW))
    monkeypatch.setattr(install, "_check", lambda *_arguments: None)
    monkeypatch.setattr(install, "_LOOK_S", 0.0)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return made


Upgrade = Callable[..., tuple[int, str]]


@pytest.fixture
def upgrade(capsys: pytest.CaptureFixture[str], host: Host) -> Upgrade:
    """Runs the command; its exit code and what it said."""

    def run() -> tuple[int, str]:
        code = main(["upgrade"])
        captured = capsys.readouterr()
        return int(code), captured.out + captured.err

    return run


def test_the_daemon_finishes_its_runs_and_the_next_release_starts(
    upgrade: Upgrade, host: Host, manager: Manager
) -> None:
    """However long it takes; the release before stays, older ones go."""
    manager.script = iter(
        [
            *RUNNING,
            *[service("deactivating", 7, status="finishing 1 runs")] * 9,
            service("activating", 8),
            service("active", 8, status="serving 1 x CPU"),
        ]
    )
    code, said = upgrade()
    assert (code, host.release) == (0, NEW)
    assert "serving 1 x CPU" in said
    assert RESTART in manager.asked
    assert manager.asked[-1] == OTHERS
    assert not host.at(f"{PREFIX}/releases/0-x").exists()
    assert host.at(OLD).exists()


def test_a_release_that_does_not_start_makes_way_for_the_one_before(
    upgrade: Upgrade, host: Host, manager: Manager
) -> None:
    """With exit code 3, and where to look."""
    ends = service("activating", 0, sub="auto-restart", restarts=1)
    manager.script = iter([*RUNNING, service("activating", 8), ends])
    code, said = upgrade()
    assert (code, host.release) == (3, OLD)
    assert f"{NEW} does not start: it ended with exit-code; {OLD} was put back" in said
    assert manager.asked[-2:] == ["systemctl stop kernel-runner.service", RESTART]


@pytest.mark.parametrize(
    ("before", "script", "says", "asked"),
    [
        (
            OLD,
            [*RUNNING, service("activating", 8, status="not ready: waiting for the database: refused")],
            "it goes on by itself when that is there",
            [RESTART, OTHERS],
        ),
        # It is stopped for a migration, which the new release brings, or never runs here: other services do.
        (
            OLD,
            [service("inactive", 0)],
            "kernel-runner.service is stopped and stays so; systemctl start kernel-runner.service",
            [OTHERS],
        ),
        (NEW, [service("active", 7)], "", []),
    ],
    ids=["waits for the database", "stopped", "the same release again"],
)
def test_a_daemon_that_does_not_serve_afterwards_is_no_failure(
    upgrade: Upgrade,
    host: Host,
    manager: Manager,
    *,
    before: str,
    script: Sequence[dict[str, str]],
    says: str,
    asked: list[str],
) -> None:
    """The release is in place; one that is in use already does not restart the daemon."""
    host.use(before)
    manager.script = iter(script)
    code, said = upgrade()
    assert (code, host.release, manager.asked) == (0, NEW, asked)
    assert says in said


def test_a_check_that_fails_changes_nothing(
    upgrade: Upgrade, host: Host, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon is not asked to do anything; nor by what is no release of the package, as a checkout's environment."""

    def check(_host: Host, otherwise: str) -> None:
        typer.echo(otherwise)
        raise typer.Exit(1)

    monkeypatch.setattr(install, "_check", check)
    manager.script = iter([service("active", 7)])
    code, said = upgrade()
    assert (code, host.release, manager.asked) == (1, OLD, [])
    assert f"goes on with {OLD}; correct what the check names, then `dpkg --configure kernel-runner`" in said
    monkeypatch.setattr(install, "own_release", lambda: Path("/home/me/kernel-runner/.venv"))
    code, said = upgrade()
    assert (code, host.release, manager.asked) == (2, OLD, [])
    assert "this is /home/me/kernel-runner/.venv, expected the release of the Debian package" in said


def test_a_package_on_a_fresh_host_says_what_comes_next(upgrade: Upgrade, host: Host, manager: Manager) -> None:
    """Without a configuration nothing can start; where one has stayed, the service is not enabled yet."""
    for gone in ((f"{PREFIX}/bin", CONFIG), (f"{PREFIX}/bin",), (CONFIG,)):
        host.file(CONFIG, b"")
        host.remove(*gone)
        manager.script = iter([service("inactive", 0)])
        code, said = upgrade()
        assert (code, host.release, manager.asked) == (0, NEW, [])
        assert "next: sudo kernel-runner install, which writes" in said
