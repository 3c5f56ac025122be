"""Step 0, first half: have a model write kernels for prompts."""

from __future__ import annotations

from typing import Final

from runner.extras.jsonl import Row
from runner.extras.trainers.client.adapters import code_of, content_text

from .asking import Request
from .enrich import Step
from .journal import Answer
from .rows import text_of

OUTPUT: Final = "outputs/completions.jsonl"
_MAX_TOKENS = 32_768
_TEMPERATURE = 1.0
_INSTRUCTION: Final = """\
Write the module {name}New: a complete Python file with its own GPU kernels, in Triton or CUDA C++ through torch. It \
must compute what the description says, and have its constructor and its forward. Put the file between a line \
BEGIN_PYTHON and a line END_PYTHON.

"""


def step(number: int = 0) -> Step:
    """The step; `number` tells rollouts of the same prompts apart."""

    def question(row: Row) -> Request | str:
        messages = _messages(row)
        if messages is None:
            return "there is no prompt"
        # The seed is what makes a rollout a request of its own.
        parameters = {"temperature": _TEMPERATURE, "max_tokens": _MAX_TOKENS, "seed": number}
        return Request(messages=messages, parameters=parameters)

    def result(row: Row, answer: Answer) -> Row:
        completion = {"role": "assistant", "content": answer.text, "reasoning": answer.reasoning}
        return {**row, "prompt": _messages(row), "completion": [completion], "generation_ms": answer.took_ms}

    return Step(name="synthesize", question=question, check=check, result=result)


def check(text: str) -> str | None:
    """Why an answer has no kernel; None: it may have one."""
    return None if "class " in code_of(text) else "the answer has no class"


def _messages(row: Row) -> list[dict[str, str]] | None:
    prompt = row.get("prompt")
    if isinstance(prompt, str) and prompt.strip():
        name = text_of(row, "entry_point", "module_name") or "Model"
        return [{"role": "user", "content": _INSTRUCTION.replace("{name}", name) + prompt}]
    if not isinstance(prompt, list) or not prompt:
        return None
    texts = [(part, text) for part in prompt if (text := content_text(part))]
    return [{"role": str(part.get("role") or "user"), "content": text} for part, text in texts] or None
