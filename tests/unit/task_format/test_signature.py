"""Names of arguments, compared with generate_input before anything runs."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runner.task_format import load_folder
from runner.task_format.signature import signature_of
from tests.unit.task_format.samples import TASK, changed, refusal, write

NAMES = ("size", "seed", "m", "n", "rank")


def generate(parameters: str) -> str:
    """A reference with this function."""
    return f"def generate_input({parameters}):\n    return None\n"


@given(
    st.lists(st.sampled_from(NAMES), unique=True),
    st.integers(0, 5),
    st.integers(0, 5),
    st.booleans(),
    st.sets(st.sampled_from((*NAMES, "other"))),
)
def test_a_case_is_refused_if_and_only_if_python_refuses_the_call(
    names: list[str], defaults: int, star: int, more: bool, case: set[str]
) -> None:
    """Whatever the function's parameters are."""
    parameters = [f"{name}=1" if index >= len(names) - defaults else name for index, name in enumerate(names)]
    if star < len(parameters):
        parameters.insert(star, "*")
    if more:
        parameters.append("**rest")
    assume(parameters[-1:] != ["*"])
    source = generate(", ".join(parameters))
    scope: dict[str, object] = {}
    exec(source, scope)  # noqa: S102 the test's own text
    signature = signature_of({"reference.py": source})
    assert signature is not None
    arguments = dict.fromkeys(case, 1)
    try:
        inspect.signature(scope["generate_input"]).bind(**arguments)  # type: ignore[arg-type]  # a function
        right = True
    except TypeError:
        right = False
    assert (not list(signature.problems(arguments, frozenset()))) == right


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def generate_input(",
        f"import functools\n@functools.cache\n{generate('n')}",
        f"{generate('n')}{generate('m')}",
        f"if True:\n    {generate('n')}",
        "generate_input = print\n",
        "from elsewhere import generate_input\n",
        "from inputs import *\n" + generate("n"),
        "class generate_input:\n    pass\n",
        "from elsewhere import *\n",
    ],
)
def test_what_the_source_alone_does_not_tell_is_left_to_the_run(source: str) -> None:
    """No guess is made."""
    assert signature_of({"reference.py": source, "inputs.py": generate("m")}) is None


def test_an_imported_function_is_looked_up_in_the_tasks_files() -> None:
    """Under the name that its own file has for it; files that import each other are no answer."""
    reference = "from inputs import make as generate_input\n"
    files = {"reference.py": reference, "inputs.py": "def make(n, *, seed=1): ...\n"}
    signature = signature_of(files)
    assert signature is not None
    assert (signature.names, signature.required) == (("n", "seed"), frozenset({"n"}))
    assert signature_of({**files, "reference.py": "from again import *\n", "again.py": reference}) == signature
    assert signature_of({**files, "inputs.py": "from reference import generate_input as make\n"}) is None


def test_every_types_cases_are_compared_and_the_nearest_name_is_given(tmp_path: Path) -> None:
    """All mistakes come at once, also those of types and hidden cases that are never run here."""
    case, wrong = {"size": 1, "seed": 1}, {"size": 1, "sed": 1}
    task = changed(tests=[case, {"seed": 1}], benchmarks=[case])
    extra = {"harness": "builtin", "hidden": [wrong], "cases": {"H100": {"benchmarks": [{**case, "sizes": 2}]}}}
    files = {"reference.py": generate("size, seed=0, *, edge=0")}
    unknown = "found no such argument of generate_input, expected one of size, seed, edge"
    assert refusal(write(tmp_path, task, extra=extra, files=files)).splitlines() == [
        "adder/task.yml: tests[1].size: found nothing, expected a value: generate_input has no default for it",
        f"adder/runner.yml: hidden[0].sed: {unknown} (did you mean 'seed'?)",
        f"adder/runner.yml: cases.H100.benchmarks[0].sizes: {unknown} (did you mean 'size'?)",
    ]
    program = {key: value for key, value in extra.items() if key != "harness"}
    assert load_folder(write(tmp_path / "program", TASK, extra=program, files=files)).task.extra.hidden == (wrong,)
