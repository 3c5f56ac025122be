"""The cases file: one case per line, `key: value` joined by `; `; pure, standard library only.

Accepts the union of the grammars in use: values are integers, floats, booleans, words (letters, digits, underscores,
dashes, dots) and tuples of integers in `[..]` or `(..)`. Any other text stands in quotes, as JSON has it. Called by the
runner, the judge and the eval program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: The largest seed of a secret run. numpy's generators take 0 to this; torch's and Python's more.
LARGEST_SEED = (1 << 32) - 1

Value = int | float | bool | str | tuple[int, ...]

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]{1,3})?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_TUPLE = re.compile(r"[\[(]\s*([+-]?[0-9]{1,19}(\s*,\s*[+-]?[0-9]{1,19})*\s*,?)?\s*[\])]")
_BOOLEANS = {"True": True, "true": True, "False": False, "false": False}


class CaseError(ValueError):
    """A line that is no case; the message names the line and what was expected."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case: the arguments of generate_input, and the line as it was written."""

    spec: str
    arguments: Mapping[str, Value]

    @property
    def seed(self) -> int | None:
        """The case's seed, where it has one."""
        seed = self.arguments.get("seed")
        return seed if isinstance(seed, int) and not isinstance(seed, bool) else None

    def with_seed(self, seed: int) -> Mapping[str, Value]:
        """The arguments with another seed; unchanged where the case has none."""
        return {**self.arguments, "seed": seed} if self.seed is not None else self.arguments


def parse_cases(lines: Sequence[str], *, global_seed: int | None) -> tuple[Case, ...]:
    """Parse spec lines, skipping blank ones, and fold the global seed into the cases' own.

    Raises:
        CaseError: a line that does not parse.
    """
    cases = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            arguments = _parse_line(line.strip(), number)
            case = Case(spec=line.strip(), arguments=arguments)
            if global_seed is not None and case.seed is not None:
                case = Case(spec=case.spec, arguments=case.with_seed(combine(case.seed, global_seed)))
            cases.append(case)
    return tuple(cases)


def spec_line(arguments: Mapping[str, object]) -> str:
    """The line of a case; `parse_cases` gives the same arguments back, lists as tuples.

    The order is that of the mapping. jsonb sorts keys by length, so the lines of a stored task have another order than
    task.yml.
    """
    return "; ".join(f"{name}: {_written(value)}" for name, value in arguments.items())


def combine(case_seed: int, global_seed: int) -> int:
    """The seed of a case under a global seed, by KernelBot's rule: a + (a + b)(a + b + 1) // 2.

    That grows to 2**61. Where numpy's generators would refuse it, its lowest 32 bits are taken.
    """
    both = case_seed + global_seed
    return (case_seed + both * (both + 1) // 2) & LARGEST_SEED


def _written(value: object) -> str:
    match value:
        case str() if not _WORD.fullmatch(value) or value in _BOOLEANS:
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            return str(list(value))
        case _:
            return str(value)


def _parse_line(line: str, number: int) -> dict[str, Value]:
    arguments: dict[str, Value] = {}
    for part in line.split(";"):
        if not part.strip():
            continue
        key, colon, text = (piece.strip() for piece in part.partition(":"))
        if not colon or not _KEY.fullmatch(key):
            raise CaseError(f"line {number}: found {part.strip()!r}, expected 'name: value' in {line!r}")
        if key in arguments:
            raise CaseError(f"line {number}: {key!r} is given twice in {line!r}")
        arguments[key] = _parse_value(text, key, number)
    if not arguments:
        raise CaseError(f"line {number}: found {line!r}, expected 'name: value' joined by '; '")
    return arguments


def _parse_value(text: str, key: str, number: int) -> Value:
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _WORD.fullmatch(text):
        return text
    if text.startswith('"'):
        return _quoted(text, key, number)
    brackets = text[:1] + text[-1:]
    if _TUPLE.fullmatch(text) and brackets in ("[]", "()"):
        return tuple(int(item) for item in text[1:-1].split(",") if item.strip())
    raise CaseError(
        f"line {number}: {key!r} is {text!r}, expected an integer, a float, True or False, a word, "
        "a text in quotes, or integers in [...]"
    )


def _quoted(text: str, key: str, number: int) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, str):
        return value
    raise CaseError(f"line {number}: {key!r} is {text}, expected a text in quotes, as JSON has it")
