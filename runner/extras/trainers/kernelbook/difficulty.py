"""Step 1: keep rows with a high reward, and have a model say how difficult their tasks are."""

from __future__ import annotations

import re
from typing import Final

from runner.extras.jsonl import Row

from .asking import Request
from .enrich import Step
from .journal import Answer
from .rows import content_of, number_of, text_of

MODEL: Final = "openai/gpt-5.2"
THRESHOLD: Final = 0.85
INPUT: Final = "siro1/kernelbook-glm4_7-evals"
OUTPUT: Final = "outputs/filtered_dataset.jsonl"
LEVELS: Final = ("low", "medium", "high")
#: Of an answer; a level is one word. What a model thinks counts, too.
_MAX_TOKENS = 8192
_TEMPERATURE = 0.1
_TAG: Final = re.compile(r"<difficulty>\s*([a-z]+)\s*</difficulty>", re.IGNORECASE)
_INSTRUCTION: Final = """\
You rate how difficult it is to write a GPU kernel for a task. You see the task and a solution that was accepted.

low: the kernel copies, reshapes or is the identity, or it computes each element by itself.
medium: a basic reduction, a normalisation over one axis, a matrix product, or an indexed access.
high: several operations fused into one kernel, attention, convolutions with fused parts, or a whole model.

Rate the task by what its kernel must do, not by the length of the code. Give one sentence of reasons. End with the \
rating in a tag, one of: <difficulty>low</difficulty> <difficulty>medium</difficulty> <difficulty>high</difficulty>"""


def step(threshold: float = THRESHOLD) -> Step:
    """The step; a reward must be above the threshold, not equal to it."""

    def question(row: Row) -> Request | str:
        reward = number_of(row, "reward")
        if reward is None:
            return "the reward is missing or not finite"
        if reward <= threshold:
            return f"the reward is not above {threshold:g}"
        answer = content_of(row, "completion")
        if answer is None:
            return "the completion has no content"
        task = content_of(row, "prompt", "user") or text_of(row, "python_code")
        if task is None:
            return "there is neither a prompt nor the reference's code"
        return Request(
            messages=[
                {"role": "system", "content": _INSTRUCTION},
                {"role": "user", "content": f"Task:\n{task}\n\nAccepted solution:\n{answer}"},
            ],
            parameters={"temperature": _TEMPERATURE, "max_tokens": _MAX_TOKENS},
        )

    return Step(name="filter", question=question, check=check, result=_result, facts={"threshold": threshold})


def level_of(text: str) -> str | None:
    """The level that an answer names, whatever its letter case. Of several tags the last counts."""
    levels = [tag.lower() for tag in _TAG.findall(text)]
    return levels[-1] if levels and levels[-1] in LEVELS else None


def check(text: str) -> str | None:
    """Why an answer has no level; None: it has one."""
    return None if level_of(text) is not None else "the answer has no tag <difficulty> with low, medium or high"


def _result(row: Row, answer: Answer) -> Row:
    return {**row, "difficulty": level_of(answer.text), "evaluation_raw": answer.text}
