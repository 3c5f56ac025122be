"""The line a case becomes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from runner.task_format.cases import program_line, value_problem
from tasks.harness.judge.cases import parse_cases, spec_line

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
INTS = st.integers(-(1 << 63), (1 << 63) - 1)
#: Texts that every grammar in use reads as text.
WORDS = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True).filter(lambda word: word not in ("true", "false"))
VALUES = st.one_of(
    INTS, st.booleans(), WORDS, st.floats(min_value=1e-300, max_value=9e15, allow_nan=False), st.lists(INTS, max_size=5)
)


def test_values_are_written_as_python_writes_them() -> None:
    """The protocol's spelling of every kind of value, in the order of the mapping."""
    case = {"k": 1, "flag": True, "off": False, "shape": [96, 128], "mode": "cold", "ratio": 0.5, "t": (1, 2)}
    assert spec_line(case) == "k: 1; flag: True; off: False; shape: [96, 128]; mode: cold; ratio: 0.5; t: [1, 2]"


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=6))
def test_the_judge_reads_back_what_was_written(case: dict[str, object]) -> None:
    """A case survives JSON and the cases file, in order, with its types."""
    stored = json.loads(json.dumps(case))
    line = spec_line(stored)
    assert "\n" not in line
    (parsed,) = parse_cases([line], global_seed=None)
    expected = {name: tuple(value) if isinstance(value, list) else value for name, value in case.items()}
    assert list(parsed.arguments.items()) == list(expected.items())
    assert [type(value) for value in parsed.arguments.values()] == [type(value) for value in expected.values()]


@given(st.text(max_size=12))
def test_an_accepted_text_stays_one_value_of_one_line(text: str) -> None:
    """No accepted text can add an argument or a line."""
    if value_problem(text) is None:
        case = {"a": text, "b": 1}
        for line in (spec_line(case), program_line(case)):
            assert line.splitlines() == [line]
            assert line.count(";") == 1
        assert program_line(case) == f"a: {text}; b: 1"
        (parsed,) = parse_cases([spec_line(case)], global_seed=None)
        assert parsed.arguments == case
