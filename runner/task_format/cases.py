"""Cases: the values that an argument may have, and the line of a case in the cases file. Pure.

A value must stay the same through three conversions: YAML to JSON, jsonb and back, and `str()` into the line that an
eval program parses.
"""

from __future__ import annotations

import math
import re

from runner.task_format.model import Case

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: Eval programs split a line at `;`. The value is the rest after the first `:`.
_TEXT = re.compile(r"[^\s;\x00-\x1f\x7f](?:[^;\x00-\x1f\x7f\u0085\u2028\u2029]*[^\s;\x00-\x1f\x7f])?")
_MAX_TEXT_CHARS = 1000
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
    match value:
        case bool():
            return None
        case int():
            return None if -_INT_LIMIT <= value < _INT_LIMIT else "an integer of at most 64 bits"
        case float():
            fine = math.isfinite(value) and abs(value) < _FLOAT_LIMIT
            return None if fine else f"a finite float below {_FLOAT_LIMIT:.0e} (write larger ones as integers)"
        case str():
            fine = len(value) <= _MAX_TEXT_CHARS and _TEXT.fullmatch(value) is not None
            return (
                None
                if fine
                else (f"a text of 1 to {_MAX_TEXT_CHARS} characters without ';', control characters, outer blanks")
            )
        case list() | tuple():
            fine = all(type(item) is int and value_problem(item) is None for item in value)
            return None if fine else "a list of integers of at most 64 bits"
        case _:
            return "an integer, a float, true or false, a text, or a list of integers"


def spec_line(case: Case) -> str:
    """The line of a case in the cases file: `name: value` joined by `; `, values as Python's str() writes them.

    The order is that of the mapping. jsonb sorts keys by length, so the lines of a stored task have another order than
    task.yml.
    """
    return "; ".join(f"{name}: {list(value) if isinstance(value, tuple) else value}" for name, value in case.items())
