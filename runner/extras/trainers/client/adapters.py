"""Connects trainers: TRL, verl, verifiers (both kinds). Each is a function around a client; none imports the trainer.

Trainers differ in how they treat a missing reward. Each adapter keeps its trainer from taking a fault of ours for a bad
candidate:

    TRL          None: the sample is left out
    verl         an exception, or a score of the caller's choice with `fault` 1 beside it
    verifiers 1  an exception, which the trace records as an error
    classic      `state["error"]` is set and an exception raised. The rubric makes 0.0 of it: mask samples with an error
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from runner.extras.trainers.client.aio import AsyncClient
from runner.extras.trainers.client.items import EvaluationFaultError, Item
from runner.extras.trainers.client.sync import Client

#: Where a completion has its code; the last one of the first pattern that fits counts.
_CODE: Final = (
    re.compile(r"BEGIN_PYTHON\s*\n(.*?)\n\s*END_PYTHON", re.DOTALL),
    re.compile(r"<answer>\s*(?:```(?:python|py)?[^\n]*\n)?(.*?)(?:\n```)?\s*</answer>", re.DOTALL),
    re.compile(r"```[^\n]*\n(.*?)\n?```", re.DOTALL),
)

#: The types of parts of a message that are text.
_TEXTS: Final = (None, "text", "output_text")
#: Makes the code of a completion's text.
Extract = Callable[[str], str]


def code_of(text: str) -> str:
    """The code of a completion; all of it where nothing marks code.

    Text without any code is still evaluated: that it is no Python is the candidate's own fault.
    """
    for pattern in _CODE:
        blocks = pattern.findall(text)
        if blocks:
            return str(blocks[-1])
    return text


def text_of(completion: object) -> str:
    """The text of a completion: a string, or the last message of the model in a conversation, all its parts of text."""
    if isinstance(completion, str):
        return completion
    messages = completion if isinstance(completion, Sequence) else ()
    replies = [message for message in messages if _field(message, "role") in (None, "assistant")]
    content = _field(replies[-1], "content") if replies else ""
    if isinstance(content, str):
        return content
    parts = [part for part in content if _field(part, "type") in _TEXTS] if isinstance(content, Sequence) else []
    texts = [part if isinstance(part, str) else _field(part, "text") for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _field(value: object, name: str) -> object:
    """Trainers have dictionaries, or objects of their own."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def trl_reward(
    client: Client,
    reward: str,
    *,
    reference: str = "reference",
    entry_point: str = "entry_point",
    extract: Extract = code_of,
) -> Callable[..., list[float | None]]:
    """A reward function for TRL's GRPOTrainer. The client stays open while training goes on.

    `reference`: the column of the dataset with the reference's text. `entry_point`: that with the name of its class;
    `Model` where there is no such column.
    """

    def function(*, completions: Sequence[object], **columns: Any) -> list[float | None]:  # noqa: ANN401 - the dataset's
        names = columns.get(entry_point) or ["Model"] * len(completions)
        items = [
            Item(reference=text, candidate=extract(text_of(completion)), entry_point=name or "Model")
            for text, completion, name in zip(columns[reference], completions, names, strict=True)
        ]
        return client.rewards(items, reward)

    # TRL logs it by its name.
    function.__name__ = re.sub(r"\W+", "_", reward)
    return function


def verl_score(
    client: Client, reward: str, *, extract: Extract = code_of, fault_score: float | None = None
) -> Callable[..., list[dict[str, float]]]:
    """A `compute_score` for verl's BatchRewardManager: `ground_truths` are the references' texts.

    `extra_infos` may name `entry_point`. It also takes the arguments of KernelGYM's trainer (`entry_points`).
    `fault_score`: of a sample that has no reward, to be masked by its `fault` 1; None: that is an error.
    """

    def compute_score(
        *,
        solution_strs: Sequence[str],
        ground_truths: Sequence[str],
        extra_infos: Sequence[Mapping[str, Any] | None] | None = None,
        entry_points: Sequence[str] | None = None,
        **_: Any,  # noqa: ANN401 - data sources and settings of the trainer
    ) -> list[dict[str, float]]:
        # verl hands over arrays, which have no truth value.
        infos = [{}] * len(solution_strs) if extra_infos is None else extra_infos
        names = [(info or {}).get("entry_point") or "Model" for info in infos] if entry_points is None else entry_points
        items = [
            Item(reference=reference, candidate=extract(solution), entry_point=name)
            for solution, reference, name in zip(solution_strs, ground_truths, names, strict=True)
        ]
        scores = []
        for result in client.evaluate(items):
            value = result.reward(reward)
            if value is None and fault_score is None:
                result.reward_or_raise(reward)
            scores.append(
                {
                    "score": float(fault_score or 0.0) if value is None else value,
                    "correct": float(result.correct),
                    "fault": float(value is None),
                }
            )
        return scores

    return compute_score


def classic_reward(client: AsyncClient, reward: str, *, extract: Extract = code_of) -> Callable[..., Awaitable[float]]:
    """A reward function for a Rubric of verifiers before version 1.

    `info` has the reference as `python_code` or `reference`, and may have `entry_point` or `module_name`.
    """

    async def function(completion: object, state: Any, info: Mapping[str, Any]) -> float:  # noqa: ANN401 - a dict, or like one
        name = info.get("entry_point") or info.get("module_name") or "Model"
        text = info.get("python_code") or info.get("reference") or ""
        item = Item(reference=text, candidate=extract(text_of(completion)), entry_point=name)
        try:
            (result,) = await client.evaluate([item])
            return result.reward_or_raise(reward)
        except Exception as error:
            state["error"] = f"{type(error).__name__}: {error}"
            raise

    function.__name__ = re.sub(r"\W+", "_", reward)
    return function


async def score(
    client: AsyncClient,
    reward: str,
    *,
    reference: str,
    reply: str,
    entry_point: str = "Model",
    extract: Extract = code_of,
) -> float:
    """The reward of one reply, for the body of a `@reward` method of verifiers 1, where `reply` is `trace.last_reply`.

    Raises:
        EvaluationFaultError: there is none. The trace records the error, and no reward.
        DatabaseUnavailableError, SubmissionError: as `AsyncClient.evaluate`.
    """
    (result,) = await client.evaluate([Item(reference=reference, candidate=extract(reply), entry_point=entry_point)])
    return result.reward_or_raise(reward)


__all__ = ["EvaluationFaultError", "classic_reward", "code_of", "score", "text_of", "trl_reward", "verl_score"]
