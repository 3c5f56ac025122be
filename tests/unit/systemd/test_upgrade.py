"""The order of an upgrade, and the way back; below a directory, with a service manager that plays a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from runner.cli import install, installation, main
from runner.cli.app import ExitCode
from runner.cli.installation import PREFIX, VENDOR, Host, Ran, Record

OLD, NEW = f"{PREFIX}/releases/1-a", f"{PREFIX}/releases/2-b"
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


class Manager:
    """Answers `systemctl show` from a script; everything else works and is noted."""

    def __init__(self) -> None:
        self.script: Script = iter(())
        self.asked: list[str] = []

    def __call__(self, arguments: Sequence[str]) -> Ran:
        """Note a command, and answer it."""
        if arguments[:2] == ("systemctl", "show") and "--property=MainPID" in arguments:
            shown = next(self.script)
            return Ran(code=0, said="\n".join(f"{key}={value}" for key, value in shown.items()))
        self.asked.append(" ".join(arguments))
        return Ran(code=0, said="NeedDaemonReload=no")


@pytest.fixture
def manager() -> Manager:
    """The service manager."""
    return Manager()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: Manager) -> Host:
    """A host with a release, on which a process of the next one runs; its check finds nothing wrong."""
    (tmp_path / "opt/kernel-runner/releases/0-x").mkdir(parents=True)
    (tmp_path / "opt/kernel-runner/releases/1-a").mkdir()
    made = Host(tmp_path, run=manager)
    for path, inside in installation.LINKS.items():
        made.link(path, f"{OLD}/{inside}").do()
    made.record = Record()
    made.save()
    monkeypatch.setattr(install, "_host", lambda **_options: Host(tmp_path, run=manager))
    monkeypatch.setattr(install, "own_release", lambda: Path(NEW))
    monkeypatch.setattr(install, "_check", lambda _host: ExitCode.OK)
    monkeypatch.setattr(install, "_LOOK_S", 0.0)
    monkeypatch.setattr(installation, "user_exists", lambda: True)
    monkeypatch.setattr(installation, "_exists", lambda _group: False)
    return made


Upgrade = Callable[..., tuple[int, str]]


@pytest.fixture
def upgrade(capsys: pytest.CaptureFixture[str], host: Host) -> Upgrade:
    """Runs the command; its exit code and what it said."""

    def run(*options: str) -> tuple[int, str]:
        code = main(["upgrade", *options])
        captured = capsys.readouterr()
        return int(code), captured.out + captured.err

    return run


def test_the_daemon_finishes_its_runs_and_the_next_release_starts(
    upgrade: Upgrade, host: Host, manager: Manager
) -> None:
    """However long it takes; the release before stays, older ones go."""
    manager.script = iter(
        [
            service("active", 7),
            *[service("deactivating", 7, status="finishing 1 runs")] * 9,
            service("activating", 8),
            service("active", 8, status="serving 1 x CPU"),
        ]
    )
    code, said = upgrade()
    assert (code, host.release) == (0, NEW)
    assert "serving 1 x CPU" in said
    assert "systemctl restart --no-block kernel-runner.service" in manager.asked
    assert manager.asked[-1] == "systemctl try-restart --no-block kernel-runner-gateway.service"
    assert host.at(VENDOR["kernel-runner.service"]).exists()


def test_a_release_that_does_not_start_makes_way_for_the_one_before(
    upgrade: Upgrade, host: Host, manager: Manager
) -> None:
    """With exit code 3, and where to look."""
    manager.script = iter(
        [service("active", 7), service("activating", 8), service("activating", 0, sub="auto-restart", restarts=1)]
    )
    code, said = upgrade()
    assert (code, host.release) == (3, OLD)
    assert f"{NEW} does not start: it ended with exit-code; {OLD} was put back" in said
    assert manager.asked[-2:] == [
        "systemctl stop kernel-runner.service",
        "systemctl restart --no-block kernel-runner.service",
    ]


def test_waiting_for_the_database_is_no_failure(upgrade: Upgrade, host: Host, manager: Manager) -> None:
    """The release is in place, and goes on by itself."""
    waiting = "not ready: waiting for the database: refused"
    manager.script = iter([service("active", 7), service("activating", 8, status=waiting)])
    code, said = upgrade()
    assert (code, host.release) == (0, NEW)
    assert "it goes on by itself when that is there" in said


def test_a_check_that_fails_changes_nothing(
    upgrade: Upgrade, host: Host, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon is not asked to do anything."""
    monkeypatch.setattr(install, "_check", lambda _host: ExitCode.NOT_ACCEPTED)
    code, said = upgrade()
    assert (code, host.release, manager.asked) == (1, OLD, [])
    assert f"nothing was changed; {OLD} goes on" in said


def test_a_dry_run_of_an_upgrade_changes_nothing(upgrade: Upgrade, host: Host, manager: Manager) -> None:
    """It names the links and files."""
    code, said = upgrade("--dry-run")
    assert (code, host.release) == (0, OLD)
    assert f"would link {PREFIX}/bin to {NEW}/bin" in said


def test_there_must_be_something_to_upgrade(upgrade: Upgrade, host: Host) -> None:
    """Else it is `install` that is wanted."""
    host.at(f"{PREFIX}/bin").unlink()
    code, said = upgrade()
    assert code == 2
    assert "nothing is installed below /opt/kernel-runner: expected a release; use `install`" in said
