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
