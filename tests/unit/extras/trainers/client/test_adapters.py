"""Adapters speak their trainers' published interfaces, and turn no fault of ours into a reward of 0."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from runner.extras.trainers.client import AsyncClient, Client, EvaluationFaultError, Item, Result
from runner.extras.trainers.client.adapters import classic_reward, code_of, score, text_of, trl_reward, verl_score
from runner.extras.trainers.kernelbook.prompts import specification_of

FOUND = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "message": "it is so"}


class Fake:
    """Says of each candidate what its text says."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def evaluate(self, items: Sequence[Item]) -> list[Result]:
        """The results of items."""
        self.items += items
        return [
            Result(key=item.key, state="done", verdict=item.candidate, facts={**FOUND, "verdict": item.candidate})
            for item in items
        ]

    def rewards(self, items: Sequence[Item], name: str) -> list[float | None]:
        """Their rewards."""
        return [result.reward(name) for result in self.evaluate(items)]


class AsyncFake(Fake):
    """The same for coroutines."""

    async def evaluate(self, items: Sequence[Item]) -> list[Result]:  # type: ignore[override]
        """The results of items."""
        return super().evaluate(items)


_CODE = "import torch\n\nclass ModelNew:\n    x = 1"
_WITH_FENCES = _CODE + '\n    """Of use:\n\n    ```python\n    ModelNew()\n    ```\n    """\n    # ```\n    y = "```"'


@pytest.mark.parametrize("code", [_CODE, _WITH_FENCES])
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "BEGIN_PYTHON\n{}\nEND_PYTHON",
        "<answer>{}</answer>",
        "<answer>\nSo:\n```python\n{}\n```\n</answer>",
        "BEGIN_PYTHON\n```\n{}\n```\nEND_PYTHON",
        "so:\n```python\nold\n```\nbetter:\n```python\n{}\n```\n",
        "```a\nb\n```\nBEGIN_PYTHON\n{}\nEND_PYTHON",
        "<think>```python\nold\n```</think>\n{}",
        "<think>```python\nold</think>Is that so?\n```py\n{}\n```",
        "{}\n```",
        "{}\n```\nThat is it.",
        "So: ```python\n{}",
        "```\n{}",
        "```python\n{}```",
        "~~~Python title='a'\n{}\n~~~",
        "````{{.python}}\n{}\n````",
        "Don't use ```x``` inline.\n```python\n{}\n```\nRun it:\n```bash\npython a.py\n```\n```\ntensor(1)\n```",
        "It needs\nimport torch\n\n```python\n{}\n```",
        "@jit makes it fast,\nimport torch is needed.\n```\n{}\n```",
        'Say """ there.\n```python\n{}\n```',
        "Try #2: ```python\n{}\n```",
        "```python\nold\n\nBetter:\n```python\n{}\n```",
    ],
)
def test_the_code_of_a_completion(text: str, code: str) -> None:
    """The last that is marked as Python, whatever is missing of its marks, and whatever it holds itself."""
    assert code_of(text.format(code)) == code
    assert code_of(text.format(code).replace("\n", "\r\n")) == code


@pytest.mark.parametrize("text", ["just text", "", "```\n```", "<answer></answer>"])
def test_a_completion_without_code_is_evaluated_as_it_is(text: str) -> None:
    """That it is no Python is the candidate's own fault."""
    assert code_of(text) == text


@pytest.mark.parametrize(
    "part",
    [
        "BEGIN_PYTHON\n",
        "<answer>",
        "</think>",
        "<think>",
        "[/THINK]",
        "\nclass New",
        '\\"',
        "'\"\\",
        "```\n",
        '"""\n```\n',
        " \n",
        "<specification>",
        *"a~`",
    ],
)
@pytest.mark.parametrize("begin", ["", "BEGIN_PYTHON", "```python\n", "``` ", "x"])
def test_a_model_that_repeats_itself_is_read_at_once(begin: str, part: str) -> None:
    """No text takes a time that grows with its square: that would be minutes."""
    text = begin + part * (400_000 // len(part)) + "y`"
    assert isinstance(code_of(text), str)
    assert specification_of(text) is None


def as_it_is(value: object) -> object:
    """A message as a dictionary."""
    return value


def as_objects(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A message as verifiers has it."""
    if isinstance(value, list):
        return [as_objects(item) for item in value]
    return (
        SimpleNamespace(**{key: as_objects(item) for key, item in value.items()}) if isinstance(value, dict) else value
    )


@pytest.mark.parametrize("form", [as_it_is, as_objects])
@pytest.mark.parametrize("end", [[], [{"role": "user", "content": "feedback"}], [{"role": "tool", "content": "42"}]])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x", "x"),
        ("", ""),
        (None, ""),
        (["x", "y"], "xy"),
        ([{"type": "text", "text": "x"}], "x"),
        ([{"type": "text", "text": "x"}, {"type": "text", "text": "y"}], "xy"),
        ([{"type": "thinking", "text": "old"}, {"type": "output_text", "text": "x"}], "x"),
        ([{"type": "image_url", "image_url": {"url": "u"}}], ""),
        ([], ""),
    ],
)
def test_the_text_of_a_completion(
    form: Callable[[object], object], end: list[object], content: object, text: str
) -> None:
    """The last message of the model, in each form that trainers have; what its environment said after it is none."""
    begin = [{"role": "assistant", "content": "earlier"}, {"role": "user", "content": "q"}]
    assert text_of(form([*begin, {"role": "assistant", "content": content}, *end])) == text


def test_the_text_of_a_bare_completion() -> None:
    """A string; messages without a role; none."""
    assert [text_of(each) for each in ("x", [{"content": "x"}])] == ["x", "x"]
    assert [text_of(each) for each in ([{"role": "user", "content": "x"}], [], None)] == [""] * 3


def test_trl() -> None:
    """Called with keywords, as GRPOTrainer calls it: one number per completion, None where there is none."""
    fake = Fake()
    function = trl_reward(cast("Client", fake), "kernelbook@1", reference="python_code")
    rewards = function(
        prompts=["p"] * 3,
        completions=[[{"role": "assistant", "content": "```python\naccepted\n```"}], "wrong_answer", "internal_error"],
        completion_ids=[[1], [2], [3]],
        python_code=["r1", "r2", "r3"],
        entry_point=["Net", None, "Model"],
        trainer_state=object(),
    )
    assert rewards == [2.0, 0.0, None]
    assert [(item.reference, item.entry_point) for item in fake.items] == [
        ("r1", "Net"),
        ("r2", "Model"),
        ("r3", "Model"),
    ]
    assert function.__name__ == "kernelbook_1"


def test_verl() -> None:
    """Called with keywords, as BatchRewardManager calls it: an object with `score` per solution; a fault raises."""
    given: dict[str, Any] = {"data_sources": ["d"] * 2, "extra_infos": [{"entry_point": "Net"}, {}]}
    function = verl_score(cast("Client", Fake()), "kevin@1")
    assert function(**given, solution_strs=["accepted", "runtime_error"], ground_truths=["r", "r"]) == [
        {"score": 2.3, "correct": 1.0, "fault": 0.0},
        {"score": 0.0, "correct": 0.0, "fault": 0.0},
    ]
    arrays = {**given, "extra_infos": np.array(given["extra_infos"], dtype=object)}
    rows = function(**arrays, solution_strs=["accepted"] * 2, ground_truths=["r"] * 2)
    assert [row["score"] for row in rows] == [2.3, 2.3]
    with pytest.raises(EvaluationFaultError):
        function(**given, solution_strs=["accepted", "internal_error"], ground_truths=["r", "r"])
    masked = verl_score(cast("Client", Fake()), "kevin@1", fault_score=-9.0)
    scores = masked(solution_strs=["internal_error"], ground_truths=["r"], entry_points=["Net"], uuids=["u"], config={})
    assert scores == [{"score": -9.0, "correct": 0.0, "fault": 1.0}]


def test_verifiers() -> None:
    """A reward method of version 1 raises, which the trace records; the classic kind marks the state before."""
    client = cast("AsyncClient", AsyncFake())
    classic = classic_reward(client, "kernelbook@1")
    state: dict[str, Any] = {}
    info = {"python_code": "r", "module_name": "Net"}

    async def run() -> None:
        assert await score(client, "kernelbook@1", reference="r", reply="```python\naccepted\n```") == 2.0
        with pytest.raises(EvaluationFaultError):
            await score(client, "kernelbook@1", reference="r", reply="internal_error")
        assert await classic([{"role": "assistant", "content": "accepted"}], state, info) == 2.0
        assert "error" not in state
        with pytest.raises(EvaluationFaultError):
            await classic([{"role": "assistant", "content": "internal_error"}], state, info)

        with pytest.raises(AttributeError):
            await classic("accepted", other_state, cast("dict[str, Any]", "no object"))

    other_state: dict[str, Any] = {}
    asyncio.run(run())
    assert "EvaluationFaultError" in state["error"]
    assert "AttributeError" in other_state["error"]
