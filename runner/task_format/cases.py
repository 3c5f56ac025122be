"""Cases: the values that an argument may have. Pure.

A value must stay the same through three conversions: YAML to JSON, jsonb and back, and the line of the cases file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from runner.task_format.yamlfile import Unclear

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: Programs split a line at `;`. UTF-8 has no form for surrogates.
_NEVER = r";\x00-\x1f\x7f\ud800-\udfff"
_TEXT = re.compile(rf"[^\s{_NEVER}](?:[^{_NEVER}\u0085\u2028\u2029]*[^\s{_NEVER}])?")
_MAX_TEXT_CHARS = 1000
#: What KernelBot's eval programs read as a text.
_WORD = re.compile(r"(?!(?:[Tt]rue|[Ff]alse)\Z)[A-Za-z_][A-Za-z0-9_.\-]*")
_INT_LIMIT = 1 << 63
#: From this value on jsonb returns a float that was written with an exponent as an integer.
_FLOAT_LIMIT = 1e16


def name_problem(name: object) -> str | None:
    """The expected form of an argument's name; None: the name is fine."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return "an argument name of letters, digits and _ (quote words that YAML reads as true or false)"


def value_problem(value: object) -> str | None:
    """The expected form of an argument's value; None: the value is fine."""
    expected = "an integer, a float, true or false, a text, or a list of integers"
    match value:
        case bool():
            fine = True
        case int():
            fine, expected = -_INT_LIMIT <= value < _INT_LIMIT, "an integer of at most 64 bits"
        case float():
            # jsonb has no negative zero.
            fine = math.isfinite(value) and abs(value) < _FLOAT_LIMIT and str(value) != "-0.0"
            expected = f"a finite float below {_FLOAT_LIMIT:.0e} and not -0.0 (write larger ones as integers)"
        case str():
            fine = len(value) <= _MAX_TEXT_CHARS and _TEXT.fullmatch(value) is not None
            expected = f"a text of 1 to {_MAX_TEXT_CHARS} characters without ';', control characters, outer blanks"
        case list() | tuple():
            fine = all(type(item) is int and value_problem(item) is None for item in value)
            expected = "a list of integers of at most 64 bits"
        case Unclear():
            fine, expected = False, value.expected
        case _:
            fine = False
    return None if fine else expected


def program_line(case: Mapping[str, object]) -> str:
    """The line of a case for a task's own eval program: KernelBot's form, values as Python's str() writes them."""
    return "; ".join(f"{name}: {list(value) if isinstance(value, tuple) else value}" for name, value in case.items())


def is_program_word(text: str) -> bool:
    """Whether a task's own eval program reads the text in a line as that text."""
    return _WORD.fullmatch(text) is not None


def _case(value: object) -> object:
    if not isinstance(value, dict):
        raise PydanticCustomError("case", "a mapping of argument names to values")
    return value


def _checked(problem_of: Callable[[object], str | None]) -> BeforeValidator:
    """Refuses a value for which a function returns the expected form."""

    def check(value: object) -> object:
        expected = problem_of(value)
        if expected is not None:
            raise PydanticCustomError("case", "{expected}", {"expected": expected})
        return value

    return BeforeValidator(check)


CaseName = Annotated[str, _checked(name_problem)]
CaseValue = Annotated[Any, _checked(value_problem)]
CaseMapping = Annotated[Mapping[CaseName, CaseValue], BeforeValidator(_case), Field(min_length=1)]


def _on_a_line(expected: str, never: str) -> BeforeValidator:
    pattern = re.compile(rf"[^{never}\u0085\u2028\u2029]*")
    return _checked(lambda value: expected if pattern.fullmatch(str(value)) is None else None)


#: A case of a stored task with an eval program of its own: whatever KernelBot would write on the program's line.
ProgramCase = Annotated[
    Mapping[
        Annotated[str, _on_a_line("an argument name without ':', ';' and control characters", rf":{_NEVER}")],
        Annotated[Any, _on_a_line("a value whose text has no ';' and no control characters", _NEVER)],
    ],
    BeforeValidator(_case),
    Field(min_length=1),
]
