"""Dates of competition files and of the command line, in every spelling."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from runner.base.dates import DateError, read_date
from runner.base.errors import TaskError
from runner.cli.arguments import typed_date
from runner.extras.boards.commands.publish import parse_deadline
from runner.extras.boards.competition import load_competition
from runner.task_format.yamlfile import parse_yaml

CASES = Path(__file__).parent / "cases" / "date_offsets"
ROOT = Path(__file__).resolve().parents[3]

OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=OFFSETS)  # noqa: DTZ001 drawn with zones
REFUSED = (
    "soon", "infinity", "2031-10-14 24:00", "2031-10-14 23:59:60Z", "0000-01-01", "10000-01-01", "2031-13-01",
    "2031-02-29", "2031-10", "2031-10-14T", "2031-10-14Z", "2031-10-14 10", "2031-10-14 10:61", "2031-10-14 10:00 UTC",
    "2031-10-14 10:00 -08:00", "2031-10-14 10:00:00.1234567", "2031-10-14 10:00+8", "2031-10-14 10:00+24:00",
    "2031-10-14 10:00+01:99", "20311014", "2031-W42-2", "14.10.2031", "0001-01-01T00:00+01:00",
    "9999-12-31T23:00-02:00", "١٢٣٤-10-14",
)  # fmt: skip


def spelled(moment: datetime, separator: str, form: str) -> str:
    """One of the spellings of a moment with its offset."""
    text = moment.isoformat(sep=separator, timespec="auto" if moment.microsecond else "seconds")
    digits, offset = text[:-6], text[-6:]
    match form:
        case "basic":
            return digits + offset.replace(":", "")
        case "hours" if offset.endswith(":00"):
            return digits + offset[:3]
        case "zulu" if offset == "+00:00":
            return f"{digits}Z"
        case _:
            return text


@given(
    MOMENTS, st.sampled_from("T "), st.sampled_from(["extended", "basic", "hours", "zulu"]), st.sampled_from(["", '"'])
)
def test_a_date_is_the_moment_it_names(moment: datetime, separator: str, form: str, quote: str) -> None:
    """Quoted or not in YAML, on the command line, with every form of offset, to the microsecond."""
    text = spelled(moment, separator, form)
    document = cast("dict[str, Any]", parse_yaml(f"deadline: {quote}{text}{quote}".encode(), "f"))
    assert document == {"deadline": text}
    assert read_date(text) == parse_deadline(text) == moment
    assert read_date(text).tzinfo is UTC


@pytest.mark.parametrize(("written", "read"), [("2031-10-14", "00:00"), ("2031-10-14 6:59", "06:59")])
def test_a_date_without_offset_is_utc_for_a_deadline_alone(written: str, read: str) -> None:
    """KernelBot's files have such; a range of times names its zone."""
    assert parse_deadline(written).isoformat() == f"2031-10-14T{read}:00+00:00"
    with pytest.raises(typer.BadParameter, match="without a time zone"):
        typed_date(cast("Any", None), written, "--since")


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("quote", ["", '"'])
def test_anything_else_is_an_error_at_once(tmp_path: Path, text: str, quote: str) -> None:
    """In a file with its key, on the command line with its option; never an open board."""
    with pytest.raises(DateError, match=r"found .*, expected a date like"):
        read_date(text, zone=UTC)
    with pytest.raises(typer.BadParameter):
        parse_deadline(text)
    shutil.copytree(CASES, tmp_path / "folder")
    file = tmp_path / "folder" / "offsets.yaml"
    file.write_text(f"name: x\nproblems: [{{directory: twice, name: a, deadline: {quote}{text}{quote}}}]\n")
    with pytest.raises(TaskError, match=r"problems\[0\]\.deadline: found .*, expected a date like"):
        load_competition(file)


def test_the_reported_boards_close_when_they_say() -> None:
    """An unquoted offset and a quoted one."""
    closing = {problem.name: problem.deadline for problem in load_competition(CASES / "offsets.yaml")}
    assert closing == {
        "pst": datetime(2031, 10, 15, 7, 59, 59, tzinfo=UTC),
        "india": datetime(2031, 10, 15, 7, 0, tzinfo=UTC),
    }


def test_one_module_reads_dates() -> None:
    """No other takes a text apart itself."""
    reading = re.compile(r"\b(strptime|fromisoformat|isoparse)\b")
    readers = {
        path.relative_to(ROOT).as_posix()
        for package in ("runner", "sandbox", "tasks", "docs")
        for path in (ROOT / package).rglob("*.py")
        if reading.search(path.read_text(encoding="utf-8"))
    }
    assert readers == {"runner/base/dates.py"}
