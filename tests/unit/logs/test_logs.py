"""Log lines: their two forms, the job's ids, and what may never be in one."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from runner.base import logs
from runner.base.logs import LOG_INTERVAL_S, LogRateLimit
from runner.base.model import Job, Mode
from tests.unit import samples


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Logging as it was, for the tests after these."""
    handlers = list(logging.getLogger().handlers)
    yield
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    logging.getLogger().handlers[:] = handlers


def configured(log_format: Any = "json", level: str = "info") -> io.StringIO:  # noqa: ANN401 - a literal of the callee
    """A stream that the log goes to."""
    stream = io.StringIO()
    logs.configure(log_format, level, stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The JSON lines of a stream."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def job() -> Job:
    """Some job."""
    return replace(samples.job(code=b"secret source"), leaderboard="identity", mode=Mode.TEST, secret_seed=424242)


@pytest.mark.parametrize(("level", "heard"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)])
def test_the_level_decides_what_is_heard(level: str, heard: int) -> None:
    """`log_level` drops what is below it. `auto` in the journal: one object a line with level, time and component."""
    stream = configured("auto", level)
    log = logs.get_logger("runner.x")
    for number, say in enumerate((log.debug, log.info, log.warning)):
        say("hello", n=number)
    found = lines(stream)
    assert len(found) == heard
    for line in found:
        assert (line["event"], line["component"]) == ("hello", "runner.x")
        assert line["level"] == ("debug", "info", "warning")[line["n"]]
        assert datetime.fromisoformat(line["timestamp"]).tzinfo is not None


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_what_a_stranger_says_controls_no_terminal(log_format: Any) -> None:  # noqa: ANN401 - a literal of the callee
    """What a browser brings from a provider of logins stands in a line, too."""
    stream = configured(log_format)
    logs.get_logger("x").warning("hello", reason="\x1b]0;title\x07\x9b2J\u202e", each={"a": ["\x1b[2J"]})
    logs.get_logger("x").warning("hello", reason="a b\r\x1b[2J")
    assert stream.getvalue().isascii()
    assert not set(stream.getvalue()) & {"\x1b", "\x07", "\r"}


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("fault", ["full", "closed"])
def test_a_line_that_cannot_be_written_is_lost_and_ends_nothing(log_format: Any, fault: str) -> None:  # noqa: ANN401 - a literal of the callee
    """On a full disk, and into a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("w") if fault == "full" else os.fdopen(writer, "w", buffering=1) as stream:
        logs.configure(log_format, "info", stream)
        for number in range(3):
            logs.get_logger("x").warning("hello", n=number)
        # What is left of them is no matter of this test.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_every_line_of_a_jobs_thread_has_its_ids() -> None:
    """Inside job_context, and only there and on that thread."""
    stream = configured()
    log = logs.get_logger("x")
    with logs.job_context(job(), slot="cpu0"):
        log.info("inside")
        other = threading.Thread(target=log.info, args=("elsewhere",))
        other.start()
        other.join()
    log.info("after")
    inside, elsewhere, after = lines(stream)
    ids = {"job": 7, "submission": 3, "attempt": 2, "run": "7.2", "slot": "cpu0", "mode": "test"}
    assert {key: inside[key] for key in ids} == ids
    assert "job" not in {*elsewhere, *after}


def _fail(local: str) -> None:
    raise ValueError(f"postgresql://u:{local}@h/d")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_secrets_and_source_code_are_in_no_line(log_format: str) -> None:
    """Not by key, not inside a URL, not in bytes, an exception, a nested value or a traceback's locals."""
    stream = configured(log_format)
    log = logs.get_logger("x")
    log.info(
        "a", code="hunter2", database_url="postgresql://u:hunter2@h/d", nested={"token": "hunter2", "raw": b"hunter2"}
    )
    log.info("b postgresql://u:hunter2@h/d", error=ValueError("postgresql://u:hunter2@h/d"), raw=b"hunter2")
    log.info("c", items=["password=hunter2"])
    try:
        _fail("hunter" + "2")
    except ValueError:
        log.exception("d")
    assert stream.getvalue().count("\n") >= 4
    assert "hunter2" not in stream.getvalue()


def test_a_long_value_is_cut_and_says_so() -> None:
    """One line never carries a submission's whole output. What is last, as the error below a traceback, stays."""
    stream = configured()
    logs.get_logger("x").info("a", text="x" * 99_990 + "ValueError")
    (line,) = lines(stream)
    assert len(line["text"]) < 10_000
    assert "… (100000 characters) …" in line["text"]
    assert line["text"].endswith("xValueError")


def test_libraries_are_heard_from_warning_upwards() -> None:
    """The standard library's logging and its warnings come out as our lines."""
    stream = configured()
    library = logging.getLogger("some.library")
    library.info("quiet")
    library.warning("loud %s", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("deprecated", stacklevel=1)
    first, second = lines(stream)
    assert (first["event"], first["component"], first["level"]) == ("loud 1", "some.library", "warning")
    assert "deprecated" in second["event"]


def test_what_comes_again_and_again_is_said_once_a_minute() -> None:
    """With how often it was not said; every kind by itself."""
    now_s = 0.0
    sparing = LogRateLimit(clock=lambda: now_s)
    assert [sparing.due("x") for _ in range(4)] == [0, None, None, None]
    assert sparing.due("y") == 0
    now_s += LOG_INTERVAL_S
    assert [sparing.due("x"), sparing.due("x"), sparing.due("y")] == [3, None, 0]
