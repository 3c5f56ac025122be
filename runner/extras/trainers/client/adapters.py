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
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from textwrap import dedent
from typing import Any, Final

from runner.extras.trainers.client.aio import AsyncClient
from runner.extras.trainers.client.items import EvaluationFaultError, Item
from runner.extras.trainers.client.sync import Client

#: What stands before and after a completion's code; the last pair of the first that has one counts. No pattern here
#: looks at a text again and again, however often a model repeats itself.
_MARKS: Final = (
    re.compile(r"(?P<begin>BEGIN_PYTHON[ \t]*\n)|\n[ \t]*END_PYTHON"),
    re.compile(r"(?P<begin><answer>)|</answer>"),
)
#: A fence with its language. Prose may stand before one that names Python, and code before one that ends a block.
_FENCE: Final = re.compile(
    r"(?m)(?:^[ \t]*|(?<!`)(?=`+(?:py|[ \t]*$)))(?P<fence>`{3,}+|~{3,}+)[ \t{.]*+(?P<language>\w*+)[^`\n]*+$"
)
#: The same, or what may hold fences that are none: comments and strings of Python.
_PARTS: Final = re.compile(
    rf"""(?s){_FENCE.pattern}|#[^\n]*|(?<!\\)(?:(""\"|\'\'\')(?:\\.|[^\\])*?\3|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
)
#: A line that is code, not prose.
IS_CODE: Final = re.compile(
    r"(?m)^(?:(?:from [\w.]+ )?import [\w.*(]*(?:(?:, ?| as )[\w.]+)*[,)\\]?|(?:class|def) \w+[(:].*|@[\w.]+(?:\(.*)?)"
    r"[ \t\r]*+(?:#.*)?$"
)
#: How good a block's language is; others are worse.
_LANGUAGES: Final = {"python": 2, "python3": 2, "py": 2, "": 1}
#: What a candidate defines and an example of its use does not: the more of these, the better.
_DEFINES: Final = (re.compile(r"(?m)^class "), re.compile(r"(?m)^(?:class|def) \w*New\b"))
#: How models end what they think, and how they begin it.
_THOUGHT: Final = re.compile(
    r"</(?:seed:)?(?:think(?:ing)?|thought|reasoning)>|\[/THINK\]|<\|END_THINKING\|>|<\|channel\|>final<\|message\|>"
)
_THINKS: Final = re.compile(
    r"\s*+(?:<(?:seed:)?(?:think(?:ing)?|thought|reasoning)>|\[THINK\]|<\|START_THINKING\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>analysis)"
)

#: The types of parts of a message that are text.
_TEXTS: Final = (None, "text", "output_text")
#: Makes the code of a completion's text.
Extract = Callable[[str], str]


def code_of(text: str) -> str:
    """The code of a completion, without what the model thought; all of it where nothing marks code.

    Text without any code is still evaluated: that it is no Python is the candidate's own fault. What ends before the
    model has stopped thinking has no code, unless marks say that it is the answer.
    """
    # To Python both line ends are the same. From 3.14 on `dedent` changes CR LF on blank lines alone.
    text = after_thought(text).replace("\r\n", "\n")
    answer = next(filter(None, (marked(text, marks) for marks in _MARKS)), None)
    if answer is None and _THINKS.match(text):
        return ""
    text = text if answer is None else answer
    # Of equally good ones the last.
    blocks = sorted(_blocks(text), key=_quality)
    return blocks[-1][1] if blocks else text


def _quality(block: tuple[str, str]) -> tuple[int, int]:
    """How likely a block is to be the candidate: by what it defines if it may be Python, then by its language."""
    language = _LANGUAGES.get(block[0], 0)
    return sum(bool(each.search(block[1])) for each in _DEFINES) if language else 0, language


def after_thought(text: str) -> str:
    """What a model writes when it has stopped thinking; all of it where no mark says when."""
    return _THOUGHT.split(text)[-1]


def marked(text: str, marks: re.Pattern[str]) -> str | None:
    """What stands between the last pair of marks; None: there is no pair."""
    inside = begin = None
    for mark in marks.finditer(text):
        if mark["begin"]:
            begin = mark.end()
        elif begin is not None:
            inside, begin = dedent(text[begin : mark.start()]).strip(), None
    return inside


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and code of each fenced block that is not blank. Without its second fence it ends with the text."""
    first = _FENCE.search(text)
    prose = 0 if first is None or IS_CODE.search(text, 0, first.start()) else first.start()
    fences = (part for part in _PARTS.finditer(text, prose) if part["fence"])
    opened = next(fences, None)
    start = len(text) if opened is None else opened.start()
    if not prose and IS_CODE.search(text, 0, start):
        # Code comes first: its block began in the prompt, or it has none.
        yield "python", text[:start].strip("\n")
        opened = opened if opened is not None and opened["language"] else next(fences, None)
    while opened is not None:
        closed = next((each for each in fences if each["fence"].startswith(opened["fence"])), None)
        code = text[opened.end() + 1 : len(text) if closed is None else closed.start()]
        if code.strip():
            yield opened["language"].lower(), dedent(code).strip("\n")
        opened = closed if closed is not None and closed["language"] else next(fences, None)


def text_of(completion: object, role: str = "assistant") -> str:
    """The text of a completion: a string, or the last message of the model (of a role) in a conversation."""
    if isinstance(completion, str):
        return completion
    messages = completion if isinstance(completion, Sequence) else ()
    replies = [message for message in messages if _field(message, "role") in (None, role)]
    return content_text(replies[-1]) if replies else ""


def content_text(message: object) -> str:
    """The text of a message, all its parts of text."""
    content = _field(message, "content")
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
            points = float(fault_score or 0.0) if value is None else value
            scores.append({"score": points, "correct": float(result.correct), "fault": float(value is None)})
        return scores

    return compute_score


def classic_reward(client: AsyncClient, reward: str, *, extract: Extract = code_of) -> Callable[..., Awaitable[float]]:
    """A reward function for a Rubric of verifiers before version 1.

    `info` has the reference as `python_code` or `reference`, and may have `entry_point` or `module_name`.
    """

    async def function(completion: object, state: Any, info: Mapping[str, Any]) -> float:  # noqa: ANN401 - a dict, or like one
        try:
            name = info.get("entry_point") or info.get("module_name") or "Model"
            text = info.get("python_code") or info.get("reference") or ""
            item = Item(reference=text, candidate=extract(text_of(completion)), entry_point=name)
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
