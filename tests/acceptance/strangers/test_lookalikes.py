"""Arguments on their way from task.yml to generate_input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.base.errors import TaskError
from runner.base.model import Mode
from runner.extras.boards.store import BoardStore
from runner.task_format import extra_to_stored, from_stored, load, to_stored
from runner.task_format.cases import program_line
from runner.task_format.model import Task
from tasks.harness.judge.cases import parse_cases, spec_line
from tests.acceptance.judging.asking import asked
from tests.acceptance.judging.forked_judges import ForkedJudges

CASES = Path(__file__).parent / "cases" / "lookalikes"
SECRET = 1234567
#: Texts that some grammar takes for something else.
TEXTS = (
    "007", "1e3", "1.5e3", "True", "false", "[1, 2]", "(1,)", "nearest exact", "a: b", "σ²", "-1", "+1", ".5", "-.5",
    "1.", "0x10", "0o17", "1_000", "12:30", "2031-10-14", "yes", "no", "null", "~", "nan", "inf", ".inf", "1e400", "#",
    "- a", "{a: 1}", '"', "\\", 'say "a"', "'a'", "a,b", "%s", "é", "\u202e", "\U0001f600", "@SUBMISSION@", "a" * 1000,
)  # fmt: skip
WORDS = ("yes", "no", "null", "nan", "inf", "a" * 1000)
#: Plain scalars of YAML, and what they say; None: refused.
PLAIN: Mapping[str, object] = {
    "7": 7, "-7": -7, "+7": 7, "0": 0, "0x1F": 31, "1.0e3": None, "1.5e+3": 1500.0, "-2.E-2": -0.02, ".5": 0.5,
    "3.": 3.0, "true": True, "False": False, "a": "a", "a b": "a b", "2031-10-14": "2031-10-14", "[1, 2]": (1, 2),
    "[]": (),
    "007": None, "0o17": None, "0b1": None, "1_000": None, "12:30": None, "1:30.5": None, "yes": None, "No": None,
    "on": None, "OFF": None, "null": None, "~": None, "": None, "1e3": None, "1e-5": None, "-.5": None, "-0x1F": None,
    "1e400": None, "1.0e+400": None, ".inf": None, ".nan": None, "-0.0": None, "1.0e+16": None, "[1.5]": None,
    "9223372036854775808": None, "[007]": None, "[a]": None, "{a: 1}": None, "!!binary aGk=": None, '" a"': None,
    '"\\ud800"': None, '"\\0"': None, '"a;b"': None, '""': None, "!!timestamp 2031-10-14": None,
}  # fmt: skip
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(TEXTS),
    st.text(min_size=1, max_size=40),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=4),
)
ARGUMENTS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True), VALUES, min_size=1, max_size=4
)


def folder(place: Path, cases: str, *, hidden: str = "[]", harness: str = "builtin") -> Path:
    """The task with other cases, in YAML."""
    place.mkdir(exist_ok=True)
    document = yaml.safe_load((CASES / "task.yml").read_text())
    head = yaml.safe_dump({key: value for key, value in document.items() if key != "tests"})
    if harness == "program":
        head = head.replace("'@HARNESS@'", "reference.py")
    (place / "task.yml").write_text(f"{head}tests: {cases}\n")
    (place / "runner.yml").write_text(f"harness: {harness}\nhidden: {hidden}\n")
    # It takes whatever it is given.
    reference = (CASES / "reference.py").read_text().replace("(size, seed, label)", "(**arguments)")
    (place / "reference.py").write_text(reference)
    return place


def arriving(task: Task) -> list[dict[str, object]]:
    """What generate_input gets in a secret run, without the seeds that were folded in."""
    lines = [spec_line(case) for case in task.cases_for("CPU").every]
    assert all(line.splitlines() == [line] for line in lines)
    return [dict(case.arguments) for case in parse_cases(lines, global_seed=SECRET)]


def kinds(arguments: Mapping[str, object]) -> dict[str, tuple[type, object]]:
    """Names with types and values; a list is a tuple when it arrives, and a seed another seed."""
    return {
        name: (type(value), None if name == "seed" and type(value) is int else value)
        for name, value in (
            (name, tuple(value) if isinstance(value, list) else value) for name, value in arguments.items()
        )
    }


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cases=st.lists(ARGUMENTS, min_size=1, max_size=4), spelled=st.sampled_from(["yaml", "json"]))
def test_what_the_file_says_arrives_or_is_refused(
    tmp_path: Path, database_url: str, cases: list[dict[str, object]], spelled: str
) -> None:
    """Through the file, a real database, the line of the case and a secret run; tests and hidden cases alike."""
    text = (
        json.dumps(cases)
        if spelled == "json"
        else yaml.safe_dump(cases, allow_unicode=True, default_flow_style=True, width=9999).strip()
    )
    try:
        loaded = load(folder(tmp_path / "task", text, hidden=text))
    except TaskError:
        return
    store = BoardStore(database_url, application_name="test")
    try:
        name = f"board-{datetime.now(UTC).timestamp()}"
        store.create_board(
            name=name, deadline=datetime.now(UTC) + timedelta(days=1), task=to_stored(loaded.task), description="x",
            gpus=("CPU",), templates={}, extra=extra_to_stored(loaded.task.extra),
        )  # fmt: skip
        board = store.board(name)
    finally:
        store.close()
    stored = from_stored(board.task, board.extra, origin="it")
    assert [kinds(arguments) for arguments in arriving(stored)] == [kinds(case) for case in (*cases, *cases)]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_in_quotes_is_that_text(tmp_path: Path, text: str) -> None:
    """Whatever it looks like."""
    cases = json.dumps([{"label": text, "size": 1}], ensure_ascii=False)
    assert arriving(load(folder(tmp_path / "task", cases)).task) == [{"label": text, "size": 1}]


@pytest.mark.parametrize("plain", PLAIN)
def test_a_plain_scalar_is_what_it_says(tmp_path: Path, plain: str) -> None:
    """What YAML 1.1 and 1.2 read differently is refused, with file and key, in tests and hidden cases at once."""
    cases = f"[{{size: 1, label: {plain}}}]"
    expected = PLAIN[plain]
    if expected is not None:
        task = load(folder(tmp_path / "task", cases, hidden=cases)).task
        assert [kinds(arguments) for arguments in arriving(task)] == [kinds({"size": 1, "label": expected})] * 2
        return
    with pytest.raises(TaskError) as refused:
        load(folder(tmp_path / "task", cases, hidden=cases))
    lines = str(refused.value).splitlines()
    if "valid YAML" not in lines[0]:
        assert [line.partition(": found")[0].rpartition("/")[2] for line in lines] == [
            "task.yml: tests[0].label",
            "runner.yml: hidden[0].label",
        ]


@pytest.mark.parametrize("text", TEXTS)
def test_a_program_of_the_task_gets_words_alone(tmp_path: Path, text: str) -> None:
    """It reads KernelBot's lines, which have no quotes: other texts are refused, unless KernelBot stored them."""
    cases = json.dumps([{"size": 1, "label": text}, {"size": 2, "label": "word-1.x"}, {"size": 3, "label": text}])
    place = folder(tmp_path / "task", cases, harness="program")
    if text in WORDS:
        assert load(place).task.tests[0]["label"] == text
        return
    with pytest.raises(TaskError) as refused:
        load(place)
    assert [line.partition(": found")[0].rpartition(": ")[2] for line in str(refused.value).splitlines()] == [
        "tests[0].label",
        "tests[2].label",
    ]
    stored = to_stored(load(folder(tmp_path / "good", "[{size: 1}]", harness="program")).task)
    task = from_stored({**stored, "tests": [{"label": text}]}, None, origin="KernelBot's")
    assert program_line(task.tests[0]) == f"label: {text}"


def test_the_reported_task_is_judged(processes: ForkedJudges) -> None:
    """The judge's process gives generate_input the labels that stand in the file."""
    task = load(CASES).task
    task = replace(task, tests=(*task.tests, {"size": 3, "seed": 4, "label": "[1, 2]"}))
    request = asked(task, b"def custom_kernel(data):\n    return data + data\n", Mode.TEST)
    assert processes.verdict(replace(request, seed=SECRET)) == ("accepted", None)
