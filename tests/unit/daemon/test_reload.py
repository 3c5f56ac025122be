"""What a reload makes of a changed configuration; nothing is served here."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from development import stack
from runner.base.config import RELOAD, Config, Reload
from runner.base.errors import ConfigError
from runner.cli.check import _host_root
from runner.cli.finding import Mark
from runner.daemon.monitoring.readiness import Readiness
from runner.daemon.reload import DaemonSpec, Reloader
from runner.daemon.shutdown import ShutdownControl
from tests.support.waiting import PATIENCE_S


class Host:
    """A host with a configuration that the test changes."""

    def __init__(self, tmp_path: Path, notify_socket: str) -> None:
        self.values: dict[str, Any] = {
            "database_url": "postgresql://runner:hunter2@127.0.0.1:1/none",
            "eval_python": Path(sys.executable),
            "state_dir": tmp_path / "state",
            "gpus_dir": tmp_path / "gpus.d",
            "cpu_slots": 1,
        }
        self.control = ShutdownControl()
        self.readiness = Readiness(notify_socket)
        self.readiness.working("serving")
        self.reloader = Reloader(
            self.load, DaemonSpec.from_config(self.load()), control=self.control, readiness=self.readiness
        )
        self.applied: list[Config] = []
        self.reloader.begin()
        self.reloader.on_change(self.applied.append)

    def load(self) -> Config:
        """As `serve` does."""
        try:
            return Config(**self.values)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def reload(self, **changed: object) -> None:
        """Change the file and send SIGHUP."""
        self.values.update(changed)
        self.reloader.reload()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """A service manager's end of the notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.settimeout(PATIENCE_S)
        yield end


@pytest.fixture
def host(tmp_path: Path, manager: socket.socket) -> Host:
    """A host that has told its service manager that it is up."""
    made = Host(tmp_path, str(manager.getsockname()))
    assert manager.recv(4096) == b"READY=1\nSTATUS=serving"
    return made


def other_interpreter(tmp_path: Path) -> Path:
    """That of another environment."""
    venv.create(tmp_path / "another", with_pip=False, symlinks=True)
    return tmp_path / "another" / "bin" / "python"


def new_values(tmp_path: Path) -> dict[str, object]:
    """For every key one that differs from the host's."""
    (tmp_path / "other.d").mkdir()
    (tmp_path / "other.d/x.toml").write_text('name = "X"\nvendor = "none"\ndetect = false\n', encoding="ascii")
    return {
        "database_url": "postgresql://127.0.0.1:2/none",
        "database_url_file": tmp_path / "secret",
        "direct_host": "127.0.0.1:3",
        "docker_host": "unix:///elsewhere",
        "host_name": "another-name",
        "state_dir": tmp_path / "elsewhere",
        "eval_python": other_interpreter(tmp_path),
        "gpus_dir": tmp_path / "other.d",
        "slots": ({"gpu_type": "CPU", "cpus": [min(os.sched_getaffinity(0))]},),
        "cpu_slots": 2,
        "reserve_cpus": 1,
        "lease_s": 60.0,
        "heartbeat_s": 1.0,
        "poll_s": 1.0,
        "drain_timeout_s": 1.0,
        "max_attempts": 5,
        "retry_pause_s": 1.0,
        "retry_pause_max_s": 60.0,
        "max_lost_leases": 3,
        "max_unanswered_claims": 1,
        "build_timeout_s": 1.0,
        "max_run_s": 1.0,
        "warm_containers": 0,
        "build_workers": 2,
        "warm_max_age_s": 1.0,
        "warm_memory_mib": 1,
        "reserve_after_s": 1.0,
        "spool_max_mib": 1,
        "min_free_gib": 1.0,
        "retention_days": 1.0,
        "http_listen": "off",
        "gateway_listen": "127.0.0.1:8001",
        "gateway_admin_token_file": tmp_path / "token",
        "gateway_trusted_proxies": "127.0.0.2",
        "gateway_connections": 2,
        "gateway_requests_per_minute": 10,
        "gateway_streams": 10,
        "gateway_problems_dir": tmp_path / "problems",
        "gateway_publish_url_file": tmp_path / "publish",
        "gateway_hub_repository": "group/kernels",
        "gateway_hub_licence": "cc-by-4.0",
        "gateway_hub_token_file": tmp_path / "hub",
        "gateway_public_url": "https://kernels.example",
        "gateway_github_client_id": "x",
        "gateway_github_secret_file": tmp_path / "github",
        "gateway_github_url": "https://github.example.com",
        "gateway_discord_client_id": "x",
        "gateway_discord_secret_file": tmp_path / "discord",
        "gateway_discord_url": "https://discord.example.com",
        "log_format": "json",
        "log_level": "error",
    }


@pytest.mark.parametrize("key", sorted(Config.model_fields))
def test_every_key_reloads_as_it_says(host: Host, tmp_path: Path, key: str) -> None:
    """At once, after the current runs, or not: as the annotation of each key says."""
    value = new_values(tmp_path)[key]
    with capture_logs() as logs:
        host.reload(**{key: value})
    changed = getattr(host.reloader.settings.current, key) == getattr(host.load(), key)
    waits = host.control.rebuild is not None
    said = any(line["event"] == "restart_needed" for line in logs)
    assert (changed, waits, said) == {
        Reload.AT_ONCE: (True, False, False),
        Reload.AFTER_RUNS: (True, True, False),
        Reload.RESTART: (False, False, True),
        # The daemon shows the value, and does nothing with it.
        Reload.MIGRATION: (True, False, False),
    }[RELOAD[key]]
    assert host.control.stop_claiming.is_set() == waits
    assert host.applied[-1] == host.reloader.settings.current


def test_a_wrong_configuration_changes_nothing_and_is_said_once(host: Host, manager: socket.socket) -> None:
    """One error, and the service manager hears that the reload is over."""
    before = host.reloader.settings.current
    with capture_logs() as logs:
        host.reload(lease_s=-1, poll_s=7.0, cpu_slots=2)
    assert host.reloader.settings.current is before
    assert host.control.rebuild is None
    assert [line["event"] for line in logs] == ["configuration_refused"]
    assert manager.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert manager.recv(4096).startswith(b"READY=1\nSTATUS=configuration refused, the old one goes on: ")


@pytest.mark.parametrize("where", ["load", "apply"])
def test_a_reload_that_breaks_is_over_all_the_same(
    host: Host, manager: socket.socket, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Whatever it dies of: the service manager must not wait for it for ever, and the old values go on."""

    def broken(*arguments: object) -> None:
        if not arguments or arguments[0] != before:
            raise OSError("the driver went away")

    before = host.reloader.settings.current
    if where == "load":
        monkeypatch.setattr(host.reloader, "_load", broken)
    else:
        host.reloader.on_change(broken)
    with capture_logs() as logs:
        host.reload(poll_s=7.0, cpu_slots=2)
    assert [line["event"] for line in logs] == ["reload_failed"]
    assert manager.recv(4096).startswith(b"RELOADING=1\n")
    assert manager.recv(4096) == b"READY=1\nSTATUS=the reload broke, see the log; the old configuration goes on"
    assert (host.reloader.settings.current, host.control.rebuild) == (before, None)
    assert len(host.reloader.begin().slots) == 1


def test_a_configuration_that_does_not_fit_the_host_is_refused(host: Host) -> None:
    """Slots that cannot be made are reported before the daemon waits for runs to end."""
    with capture_logs() as logs:
        host.reload(slots=({"gpu_type": "H100", "devices": ["99"]},))
    assert host.control.rebuild is None
    assert "no nvidia device '99' on this host" in logs[0]["error"]


def test_an_environment_that_containers_cannot_use_is_said_before_anything_is_up(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a daemon's start, by `check` and by `make up`, in one sentence: a base below what submissions can write."""
    path = tmp_path / "base" / "bin" / "python"
    path.parent.mkdir(parents=True)
    prefixes = json.dumps([str(tmp_path / "base")] * 4)
    path.write_text(f"#!/bin/sh\necho '{prefixes}'\n", encoding="utf-8")
    path.chmod(0o755)
    host.values["eval_python"] = path
    monkeypatch.setenv("KERNEL_RUNNER_EVAL_PYTHON", str(path))
    said = []
    for start in (lambda: DaemonSpec.from_config(host.load()), stack.eval_python):
        with pytest.raises(ConfigError, match="below a directory that submissions can write") as refused:
            start()
        said.append(str(refused.value))
    (finding,) = _host_root(host.load())
    said.append(finding.found)
    assert finding.mark is Mark.FAILED
    assert all("\n" not in text and str(tmp_path / "base") in text for text in said)


def test_the_service_manager_is_told_at_once_what_waits_for_runs(host: Host, manager: socket.socket) -> None:
    """`systemctl reload` returns; the status says what is still to come."""
    host.reload(cpu_slots=2, docker_host="unix:///elsewhere")
    begun, ended = manager.recv(4096).decode(), manager.recv(4096).decode()
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", begun)
    assert ended == "READY=1\nSTATUS=configuration reloaded; docker_host, slots after the current runs"
    assert host.control.rebuild == "docker_host, slots"


def test_a_daemon_that_is_not_up_yet_is_not_reported_as_up(tmp_path: Path, manager: socket.socket) -> None:
    """READY=1 would end systemd's waiting for the start."""
    readiness = Readiness(str(manager.getsockname()))
    readiness.reloading()
    readiness.reloaded("configuration_reloaded")
    readiness.not_ready("the database", reason="away")
    assert manager.recv(4096) == b"STATUS=not ready: waiting for the database: away"


def test_the_log_shows_what_changed_and_no_password(host: Host) -> None:
    """Old and new values, of what changed only."""
    with capture_logs() as logs:
        host.reload(lease_s=60.0, database_url="postgresql://runner:hunter3@127.0.0.1:1/none")
    (line,) = logs
    assert line["changed"] == {
        "lease_s": "25.0 -> 60.0",
        "database_url": "postgresql://runner:***@127.0.0.1:1/none -> postgresql://runner:***@127.0.0.1:1/none",
    }
    assert line["waits_for_runs"] == ["database_url"]


def test_a_second_reload_counts_instead_of_the_first(host: Host) -> None:
    """Another change is waited for, or none if the first is taken back; what counts at once stays."""
    host.reload(cpu_slots=2)
    host.reload(docker_host="unix:///elsewhere")
    assert host.control.rebuild == "docker_host, slots"
    host.reload(cpu_slots=1, docker_host=None, poll_s=1.0)
    assert not host.control.stop_claiming.is_set()
    assert host.reloader.settings.current.poll_s == 1.0


def test_the_next_daemon_is_built_from_what_was_asked_last(host: Host) -> None:
    """And for that one there is nothing to wait for any more."""
    host.reload(cpu_slots=2)
    spec = host.reloader.begin()
    assert len(spec.slots) == 2
    assert host.control.rebuild is None
    host.reload()
    assert host.control.rebuild is None


def test_changed_files_of_gpu_types_need_new_parts(host: Host) -> None:
    """The key is the same, what it leads to is not."""
    directory = host.values["gpus_dir"]
    directory.mkdir()
    (directory / "x.toml").write_text('name = "X"\nvendor = "none"\ndetect = false\n', encoding="ascii")
    host.reload()
    assert host.control.rebuild == "GPU types"
