"""What `serve` refuses before it starts anything, and what signals mean."""

from __future__ import annotations

import errno
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest.mock import Mock, patch

import pytest
import structlog
from structlog.testing import capture_logs

from development import stack
from runner.base import logs
from runner.base.config import Config
from runner.base.errors import ConfigError, DiskFullError, EngineUnavailableError
from runner.base.gpu_types import Registry
from runner.cli.check import _host_root
from runner.cli.finding import Mark
from runner.daemon.instance import instance_id
from runner.daemon.loop import ExitReason
from runner.daemon.serve import only_daemon, serve, usable_slots
from runner.daemon.shutdown import ShutdownControl
from runner.daemon.signals import signals
from runner.devices.quarantine import Quarantine
from sandbox.errors import EngineRefused, NotReaped
from tests.fakes import recordings
from tests.fakes.nvml import Nvml
from tests.support.waiting import PATIENCE_S

# The package exports the function under the module's name.
serve_module = sys.modules["runner.daemon.serve"]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging stays as it is."""
    monkeypatch.setattr(logs, "configure", lambda *_arguments: None)
    yield
    structlog.reset_defaults()


def config(tmp_path: Path, **settings: Any) -> Config:  # noqa: ANN401 - any setting
    """A configuration that is complete but for what the test changes."""
    complete = {
        "database_url": "postgresql://127.0.0.1:1/none",
        "eval_python": Path(sys.executable),
        "state_dir": tmp_path / "state",
        "gpus_dir": tmp_path / "gpus.d",
    }
    return Config(**{**complete, **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"database_url": None}, "no database: set DATABASE_URL"),
        ({"eval_python": None}, "eval_python is not set"),
        ({"slots": ({"gpu_type": "H10"},)}, r"slots\[0\]: GPU type 'H10' is not known"),
        ({"state_dir": Path("/proc/nowhere")}, "state_dir='/proc/nowhere' cannot be written"),
    ],
)
def test_serving_with_a_wrong_configuration_is_refused(tmp_path: Path, settings: Any, message: str) -> None:  # noqa: ANN401 - any setting
    """The operator is told before anything runs."""
    with pytest.raises(ConfigError, match=message):
        serve(config(tmp_path, **settings))


def test_a_host_serves_without_the_slot_of_a_lost_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says which, and why."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(lambda: [recordings.nvidia("NVIDIA L4", 0x27B8, 23, (8, 9))]))
    two_slots = config(tmp_path, slots=[{"gpu_type": "L4", "devices": [number], "cpus": [0]} for number in (0, 1)])
    with capture_logs() as lines:
        (slot,) = usable_slots(two_slots, Registry.load(two_slots.gpus_dir))
    assert slot.name == "nvidia0"
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("slot_left_out", "error")
    assert line["problem"].startswith("slots[1]: no nvidia device '1' on this host, found: 0 = ")


def test_an_environment_that_containers_cannot_use_is_said_before_anything_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a daemon's start, by `check` and by `make up`, in one sentence: a base below what submissions can write."""
    path = tmp_path / "base" / "bin" / "python"
    path.parent.mkdir(parents=True)
    prefixes = json.dumps([str(tmp_path / "base")] * 4)
    path.write_text(f"#!/bin/sh\necho '{prefixes}'\n", encoding="utf-8")
    path.chmod(0o755)
    given = config(tmp_path, eval_python=path)
    monkeypatch.setenv("KERNEL_RUNNER_EVAL_PYTHON", str(path))
    said = []
    for start in (lambda: usable_slots(given, Registry.load(given.gpus_dir)), stack.eval_python):
        with pytest.raises(ConfigError, match="below a directory that submissions can write") as refused:
            start()
        said.append(str(refused.value))
    (finding,) = _host_root(given)
    said.append(finding.fact)
    assert finding.mark is Mark.FAILED
    assert all("\n" not in text and str(tmp_path / "base") in text for text in said)


def test_the_configuration_reaches_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engine, evaluator, stores and log get what the keys say."""
    parts = Mock()
    parts.DockerEngine.return_value.check.return_value.data_roots = (Path("/"),)
    parts.Daemon.return_value.run.return_value = ExitReason.CLEAN
    for name in ("DockerEngine", "Daemon", "Evaluator"):
        monkeypatch.setattr(serve_module, name, getattr(parts, name))
    monkeypatch.setattr(logs, "configure", parts.configure)
    control = ShutdownControl()
    configuration = config(
        tmp_path, docker_host="unix:///x", host_name="gpu-01", min_free_gib=1e9, log_format="json", log_level="error"
    )
    assert serve(configuration, control) == 0
    parts.configure.assert_called_once_with("json", "error")
    parts.DockerEngine.assert_called_once_with("unix:///x", owner=f"gpu-01:{tmp_path / 'state'}")
    (whole,), seen = parts.Daemon.call_args
    assert parts.Evaluator.call_args.args[2] == whole == configuration
    parts.Daemon.return_value.run.assert_called_once_with(control)
    assert seen["instance"] == instance_id(tmp_path / "state")
    for purpose in ("claim", "listen"):
        address = seen["store_factory"](purpose)._link._address
        assert "host=127.0.0.1" in address
        assert "target_session_attrs=read-write" in address
    with pytest.raises(DiskFullError, match=r"state_dir .* floor 1e\+09 GiB: free some"):
        seen["check_disk"]()
    seen["engine"].check()
    with pytest.raises(DiskFullError, match="the engine's data in /: "):
        seen["check_disk"]()
    # Warm containers are removed while the engine can still be spoken to.
    closed = [name for name, *_ in parts.mock_calls if name.endswith("().close")]
    assert closed == ["Evaluator().close", "DockerEngine().close"]


def test_one_daemon_per_state_directory(tmp_path: Path) -> None:
    """A second one would remove the first one's containers; after the first has ended it may start."""
    with only_daemon(tmp_path / "state"):
        assert (tmp_path / "state/daemon.lock").is_file()
        with pytest.raises(ConfigError, match="another daemon uses state_dir"), only_daemon(tmp_path / "state"):
            pass
    no_locks = OSError(errno.ENOLCK, "No locks available")
    with (
        patch("fcntl.flock", side_effect=no_locks),
        pytest.raises(ConfigError, match="cannot be locked"),
        only_daemon(tmp_path / "state"),
    ):
        pass
    with only_daemon(tmp_path / "state"):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_drains_and_the_second_aborts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """And afterwards the process's own handlers are back."""
    control = ShutdownControl()

    def daemon(*_: object) -> ExitReason:
        signal.raise_signal(number)
        assert control.stop.wait(PATIENCE_S)
        assert not control.abort.is_set()
        signal.raise_signal(number)
        assert control.abort.wait(PATIENCE_S)
        return ExitReason.CLEAN

    monkeypatch.setattr(serve_module, "_serve", daemon)
    with _handled(number, signal.SIG_DFL):
        assert serve(config(tmp_path, http_listen="off"), control) == 0
        assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize(("number", "ignored"), [(signal.SIGTERM, False), (signal.SIGINT, True), (signal.SIGHUP, True)])
def test_a_signal_that_was_ignored_stays_ignored(number: signal.Signals, *, ignored: bool) -> None:
    """As after `nohup`, which is to outlive its terminal. SIGTERM ends a daemon in any case."""
    with _handled(number, signal.SIG_IGN), signals({number: lambda: None}):
        assert (signal.getsignal(number) is signal.SIG_IGN) == ignored


@contextmanager
def _handled(number: signal.Signals, how: signal.Handlers) -> Iterator[None]:
    before = signal.signal(number, how)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_a_handler_that_fails_does_not_deafen_the_process() -> None:
    """The next signal is heard, and one without a handler of ours is none of ours."""
    heard = threading.Event()

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    with capture_logs() as logs_, signals({signal.SIGUSR1: fail, signal.SIGUSR2: heard.set}):
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
        assert heard.wait(PATIENCE_S)
    assert [line["event"] for line in logs_] == ["signal_handler_failed"]


def test_a_container_of_an_earlier_process_that_does_not_go_costs_its_slot_only() -> None:
    """Where it is known on which slot it is; else nothing may be used, and the engine is what is waited for."""

    class Left:
        id = "0123456789abcdef"

        def close(self) -> None:
            raise EngineRefused("it hangs")

    class FakeEngine:
        labels: ClassVar[dict[str, str]] = {"kernel-runner.slot": "cpu1"}

        def reap(self) -> int:
            raise NotReaped("it hangs", left=[(Left(), self.labels)])

    quarantine = Quarantine()
    port = serve_module._DockerAdapter(cast("Any", FakeEngine()), quarantine, {"cpu0", "cpu1"})
    assert port.reap() == 0
    assert quarantine.reasons() == {"cpu1": "container 0123456789ab could not be removed: it hangs"}
    FakeEngine.labels = {"kernel-runner.slot": "gone"}
    with pytest.raises(EngineUnavailableError, match="it hangs"):
        port.reap()
    quarantine.close()
