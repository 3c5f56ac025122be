"""The development stack: whose processes it stops, whose settings it hears."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from development import stack as module
from development.__main__ import main
from development.stack import GATEWAY_LISTEN, Engine, Stack, own_environment
from runner.extras.config import SiteConfig
from tests.support import ports


@pytest.fixture(name="stack")
def _stack(tmp_path: Path) -> Stack:
    return Stack(tmp_path / "stack")


@pytest.fixture(name="free_port")
def _free_port() -> int:
    return ports.free_port()


def test_a_stranger_who_got_the_number_of_an_old_pid_file_is_left_alone(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reboot a pid file may name anybody: this test's own process is neither found nor stopped."""
    restarts: list[str] = []
    monkeypatch.setattr(Stack, "_start_dockerd", lambda _: restarts.append("started"))
    for name in ("daemon.pid", "gateway.pid", "docker.pid", "postgres/postmaster.pid"):
        file = stack.directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{os.getpid()}\n", encoding="utf-8")
    assert not stack.daemon_runs()
    assert not stack.gateway_runs()
    stack.stop_all()
    # It may have been killed with containers running: only a new one can end them.
    assert restarts == ["started"]


def test_a_process_that_names_the_directory_is_stopped(stack: Stack) -> None:
    """The daemon is known by its configuration file's path on its command line."""
    sleeper = "import sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", sleeper, "--config", str(stack.config_file)], stdin=subprocess.PIPE
    ) as process:
        (stack.directory / "daemon.pid").write_text(f"{process.pid}\n", encoding="utf-8")
        assert stack.daemon_runs()
        stack.stop_daemon()
        assert not stack.daemon_runs()


def test_the_gateway_is_started_once_and_stopped(
    stack: Stack, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an admin token that only its owner reads; it lives without a database.

    One that ends does not stop the stack, and says where its log is.
    """
    # Without a database's address it ends at once, as it does when it cannot listen.
    stack.config_file.write_text('gateway_listen = "127.0.0.1:1"', encoding="utf-8")
    stack.serve_gateway()
    assert str(stack.gateway_log) in capsys.readouterr().err
    settings = [
        'database_url = "postgresql://nobody@127.0.0.1:1/nothing"',
        f'gateway_listen = "127.0.0.1:{free_port}"',
        f'gateway_admin_token_file = "{stack.admin_token_file}"',
    ]
    stack.config_file.write_text("\n".join(settings), encoding="utf-8")
    pid = stack.start_gateway()
    assert stack.start_gateway() == pid
    assert stack.admin_token_file.stat().st_mode & 0o777 == 0o600
    stack.serve_gateway()
    assert stack.gateway_runs()
    stack.stop_all()
    assert not stack.gateway_runs()


def configure(stack: Stack, port: int) -> Stack:
    """A stack whose gateway has a usual port and no database."""
    stack.write_config(
        database_url="postgresql://nobody@127.0.0.1:1/nothing",
        engine=Engine(url="unix:///nowhere", ours=False),
        gateway_listen=f"127.0.0.1:{port}",
    )
    return stack


def test_a_second_stack_takes_another_port_and_each_finds_its_own(
    tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The port that answers is another checkout's gateway: it is neither announced nor stopped."""
    one, two = (configure(Stack(tmp_path / name), free_port) for name in ("one", "two"))
    try:
        assert one.serve_gateway() == f"http://127.0.0.1:{free_port}"
        other = two.serve_gateway()
        assert other is not None
        assert other != f"http://127.0.0.1:{free_port}"
        said = f"port {free_port} is taken by another program: this gateway takes port {other.rpartition(':')[2]}"
        assert said in capsys.readouterr().err
        # A second `make up` finds what runs, and writes the configuration again.
        assert configure(two, free_port).serve_gateway() == two.gateway_url() == other
        one.stop_gateway()
        assert one.gateway_url() is None
        assert two.gateway_url() == other
    finally:
        one.stop_all()
        two.stop_all()
    assert two.gateway_url() is None


def test_a_shell_set_up_for_another_database_does_not_reach_the_stacks_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Variables win over the configuration file, so none of ours may be inherited."""
    ours = {"DATABASE_URL": "postgresql://production/kernelbot", "DOCKER_HOST": "unix:///nowhere"}
    ours |= {"KERNEL_RUNNER_STATE_DIR": "/nowhere"}
    for name, value in {**ours, "LANG": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    environment = own_environment()
    assert environment["LANG"] == "C.UTF-8"
    assert not ours.keys() & environment.keys()
    # A stack does not read the guests' keys as guests do.
    assert SiteConfig.model_fields["gateway_listen"].default == GATEWAY_LISTEN


def test_the_last_user_stops_the_engine(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands share one engine, and neither takes it from the other."""
    stops: list[str] = []
    engine = Engine(url="unix:///ours.sock", ours=True)
    monkeypatch.setattr(Stack, "start_engine", lambda _: engine)
    monkeypatch.setattr(Stack, "stop_engine", lambda _: stops.append("stopped"))
    with stack.use() as first:
        with stack.use() as second:
            assert first == second == engine
        assert not stops
    assert stops == ["stopped"]


def test_clean_removes_what_the_stacks_of_this_checkout_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every directory that is there goes, with its data; none is made on the way."""
    monkeypatch.setattr(module, "_STATE", tmp_path)
    data = module.state_directory("demo") / "postgres" / "data"
    data.mkdir(parents=True)
    assert main(["clean"]) == 0
    assert not list(tmp_path.iterdir())
