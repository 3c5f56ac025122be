"""The code of a completion, among what models write before and after it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from runner.extras.trainers.client.adapters import code_of
from runner.extras.trainers.kernelbook.prompts import specification_of

CODE = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass"
DRAFT = "class ModelNew:\n    draft = True"
#: How models begin and end what they think.
THOUGHTS = [
    *((f"<{tag}>", f"</{tag}>") for tag in ("think", "thinking", "thought", "reasoning", "seed:think")),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
]
#: Blocks that a model writes beside the candidate, none of which is one.
BESIDE = [
    "```python\nmodel = ModelNew().cuda()\nprint(model(torch.randn(8)))\n```",
    "```python\nimport torch\n\nclass Model(torch.nn.Module):\n    pass\n```",
    "```python\nclass TestModel(unittest.TestCase):\n    pass\n```",
    "```bash\npython candidate.py\n```",
    "```\ntensor([1.])\n```",
    "```cpp\nclass ModelNew {};\n```",
]
ANSWERS = ["{}", "```python\n{}\n```", "So:\n\n```py\n{}\n```\nThat is it.", "<answer>\n{}\n</answer>"]


@pytest.mark.parametrize(("begin", "end"), THOUGHTS)
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("prefilled", [False, True])
def test_a_draft_is_thought(begin: str, end: str, answer: str, *, prefilled: bool) -> None:
    """What the model thought is no answer, though the template of the chat holds its first tag."""
    thought = f"Perhaps\n```python\n{DRAFT}\n```\nor\n{DRAFT}\n"
    assert code_of(f"{'' if prefilled else begin}{thought}{end}\n{answer.format(CODE)}") == CODE


@pytest.mark.parametrize(("begin", "end"), THOUGHTS)
def test_a_model_that_never_stops_thinking_has_no_answer(begin: str, end: str) -> None:
    """A limit of tokens cuts it there; where it marks an answer nevertheless, that counts."""
    cut = f"\n{begin}Perhaps\n```python\n{DRAFT}\n```\nBut then"
    assert code_of(cut) == code_of(f"{begin}x{end}{cut}") == ""
    assert code_of(f"{cut}\n<answer>\n{CODE}\n</answer>") == CODE


@pytest.mark.parametrize(("first", "second"), list(pairwise([*BESIDE, *BESIDE[::2], *BESIDE[1::2]])))
@pytest.mark.parametrize("candidate", ["```python\n{}\n```", "```\n{}\n```", "{}\n```"])
def test_what_stands_beside_the_candidate_is_not_evaluated(candidate: str, first: str, second: str) -> None:
    """Examples of its use, the original, tests and outputs are no candidates, whichever comes last."""
    block = candidate.format(CODE)
    assert code_of(f"{block}\nUse it:\n{first}\nAnd:\n{second}\n") == CODE
    if candidate.startswith("```"):
        assert code_of(f"Now:\n{first}\nBetter:\n{block}\nUse:\n{second}") == CODE


def test_of_two_candidates_the_last_counts() -> None:
    """Models correct themselves; an answer without any class is the last block, as before."""
    assert code_of(f"```python\n{DRAFT}\n```\nBetter:\n```python\n{CODE}\n```\n{BESIDE[0]}") == CODE
    assert code_of("```python\nx = 1\n```\n```python\nx = 2\n```") == "x = 2"
    factory = "def ModelNew():\n    return torch.nn.Identity()"
    assert code_of(f"```python\n{factory}\n```\n{BESIDE[0]}") == factory


@pytest.mark.parametrize(("begin", "end"), [*THOUGHTS, ("", "")])
def test_a_specification_is_what_the_model_writes_last(begin: str, end: str) -> None:
    """Models repeat first what they are asked, tags included."""
    asked = "I put the text between <specification> and </specification>."
    draft = "<specification>Draft</specification>"
    assert specification_of(f"{begin}{asked} {draft}{end}\n<specification>\nIt adds.\n</specification>") == "It adds."
