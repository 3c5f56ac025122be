"""Step 2: have a model write a specification of each module, without code and without hints at a solution."""

from __future__ import annotations

import re
from typing import Final

from runner.extras.jsonl import Row
from runner.extras.trainers.client.adapters import IS_CODE, after_thought, marked

from .asking import Request
from .enrich import Step
from .journal import Answer
from .rows import text_of

MODEL: Final = "openai/gpt-5.2"
INPUT: Final = "GPUMODE/KernelBook"
OUTPUT: Final = "outputs/synthetic_prompts.jsonl"
_MAX_TOKENS = 32_768
_TEMPERATURE = 0.3
_TAGS: Final = re.compile(r"(?P<begin><specification>)|</specification>", re.IGNORECASE)
_INDENT: Final = re.compile(r"(?m)^[^\S\n]+")
#: What a specification may not hold, and what that is called.
_LEAKS: Final = (
    (re.compile(r"```|~~~"), "a code fence"),
    (re.compile(r"\btl\.\w"), "a call of triton.language"),
    (re.compile(r"\btriton\b", re.IGNORECASE), "the word Triton"),
    (re.compile(r"@triton|@(?:torch\.)?jit\b"), "a decorator of a kernel"),
    (IS_CODE, "a line of Python"),
)
_INSTRUCTION: Final = """\
You write specifications of tasks for GPU programmers. You see a PyTorch module. Describe what must be implemented, so \
that an engineer who does not see the code builds an equivalent module:

- the mathematics, step by step, with the order of operations where it matters;
- the shapes and dtypes of inputs, parameters and outputs, and what each argument of the constructor means;
- the interface: the new module is a class {name}New, whose constructor and forward take what those of {name} take;
- special cases: training mode, randomness, values that are changed in place.

Write prose. Show no code, no code fence, and say nothing about how a kernel could be written or with which tool. \
Put the whole text between <specification> and </specification>."""


def step() -> Step:
    """The step."""
    return Step(name="prompts", question=_question, check=check, result=_result)


def name_of(row: Row) -> str | None:
    """The module's name: the class of the reference, which `module_name` need not be."""
    return text_of(row, "entry_point", "module_name")


def specification_of(text: str) -> str | None:
    """What stands between the last tags, since models repeat what they are asked first; None: nothing."""
    return marked(after_thought(text), _TAGS) or None


def check(text: str) -> str | None:
    """Why an answer is no specification; None: it is one."""
    specification = specification_of(text)
    if specification is None:
        return "the answer has no tag <specification>"
    lines = _INDENT.sub("", specification)
    return next((f"the specification holds {what}" for leak, what in _LEAKS if leak.search(lines)), None)


def _question(row: Row) -> Request | str:
    name, code = name_of(row), text_of(row, "python_code")
    if name is None:
        return "the module has no name"
    if code is None:
        return "there is no python_code"
    return Request(
        messages=[
            {"role": "system", "content": _INSTRUCTION.replace("{name}", name)},
            {"role": "user", "content": code},
        ],
        parameters={"temperature": _TEMPERATURE, "max_tokens": _MAX_TOKENS},
    )


def _result(row: Row, answer: Answer) -> Row:
    # All rows have the same columns, or the set could not be uploaded.
    kept: Row = {name: row[name] for name in ("triton_code", "uuid", "licenses") if name in row}
    return {
        "prompt": specification_of(answer.text),
        "module_name": name_of(row),
        "python_code": text_of(row, "python_code"),
        **kept,
    }
