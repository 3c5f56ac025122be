"""What `serve` refuses before it starts anything, and what signals mean."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from runner import logs
from runner.config import Config
from runner.daemon.serve import _only_daemon, _signals, serve
from runner.errors import ConfigError

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


def test_serving_reads_the_operators_gpu_types(tmp_path: Path) -> None:
    """`gpus_dir` is where they are looked for."""
    (tmp_path / "gpus.d").mkdir()
    (tmp_path / "gpus.d/x.toml").write_text('name = "X"\nvendor = "martian"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"gpus\.d/x\.toml: vendor: found 'martian'"):
        serve(config(tmp_path))


def test_the_configuration_reaches_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engine, evaluator, stores and log get what the keys say."""
    seen: dict[str, Any] = {}

    class FakeEngine:
        def __init__(self, base_url: str | None, *, owner: str) -> None:
            seen.update(base_url=base_url, owner=owner)

        def close(self) -> None:
            seen.update(closed=True)

    class FakeDaemon:
        def __init__(self, given: Config, **parts: Any) -> None:  # noqa: ANN401 - whatever serve hands over
            seen.update(parts, config=given)

        def run(self, stop: threading.Event, abort: threading.Event) -> int:
            seen.update(stop=stop, abort=abort, waiting=parts_of(seen["store_factory"]("claim")))
            return 0

    class FakeEvaluator:
        def __init__(self, _engine: object, _registry: object, settings: object) -> None:
            seen.update(settings=settings)

        def close(self) -> None:
            assert "closed" not in seen, "parked containers are removed while the engine can still be spoken to"
            seen.update(nothing_parked=True)

    def parts_of(store: Any) -> str:  # noqa: ANN401 - looks inside
        return str(store._link._conninfo)

    monkeypatch.setattr(serve_module, "DockerEngine", FakeEngine)
    monkeypatch.setattr(serve_module, "Daemon", FakeDaemon)
    monkeypatch.setattr(serve_module, "Evaluator", FakeEvaluator)
    monkeypatch.setattr(logs, "configure", lambda *arguments: seen.update(log=arguments))
    stop = threading.Event()
    given = config(
        tmp_path,
        docker_host="unix:///x",
        host_name="gpu-01",
        build_timeout_s=9.0,
        max_run_s=60.0,
        park_containers=0,
        log_format="json",
        log_level="error",
    )
    assert serve(given, stop) == 0
    assert (seen["base_url"], seen["owner"]) == ("unix:///x", f"gpu-01:{tmp_path / 'state'}")
    assert seen["log"] == ("json", "error")
    assert "host=127.0.0.1" in seen["waiting"]
    settings = seen["settings"]
    assert settings.eval_python == Path(sys.executable)
    assert (settings.state_dir, settings.host_name, settings.max_run_s) == (tmp_path / "state", "gpu-01", 60.0)
    assert seen["stop"] is stop
    assert (settings.park_containers, settings.build_timeout_s) == (0, 9.0)
    assert seen["nothing_parked"]
    assert seen["closed"]


def test_one_daemon_per_state_directory(tmp_path: Path) -> None:
    """A second one would remove the first one's containers; after the first has ended it may start."""
    with _only_daemon(tmp_path / "state"):
        assert (tmp_path / "state/daemon.lock").is_file()
        with pytest.raises(ConfigError, match="another daemon uses state_dir"), _only_daemon(tmp_path / "state"):
            pass
    with _only_daemon(tmp_path / "state"):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains_and_the_second_aborts(number: signal.Signals) -> None:
    """And afterwards the process's own handlers are back."""
    before = signal.getsignal(number)
    stop, abort = threading.Event(), threading.Event()
    with _signals(stop, abort):
        signal.raise_signal(number)
        assert (stop.is_set(), abort.is_set()) == (True, False)
        signal.raise_signal(number)
        assert abort.is_set()
    assert signal.getsignal(number) is before
