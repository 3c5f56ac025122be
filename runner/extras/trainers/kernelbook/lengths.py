"""Step 4: how many tokens the rows of a data set have, and which sequence length training needs.

Tokens are counted as training sees them: prompt and completion through the tokenizer's chat template, without a prompt
for generation and without further special tokens. Templates read a message's `reasoning_content`; the rows carry
`reasoning`, which is mapped to it, so that it is counted.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from runner.base.errors import DataError
from runner.extras.jsonl import Row

from .report import StepReport
from .rows import Source, batches

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MODEL_NAME: Final = "Qwen/Qwen3-30B-A3B-Thinking-2507"
PERCENTILES: Final = (50, 75, 90, 95, 99, 99.5, 99.9, 100)
#: Upper ends of the buckets, in tokens.
BUCKETS: Final = tuple(1024 * 2**power for power in range(8))
LIMITS: Final = tuple(1024 * 2**power for power in range(1, 6))
#: Sequence lengths that are recommended, and the shares of rows that they are to hold.
LENGTHS: Final = tuple(1024 * 2**power for power in range(7))
COVERAGES: Final = (99.0, 99.5, 100.0)
#: Rows that are tokenized at once.
_BATCH: Final = 64


def figures(tokens: Sequence[int]) -> dict[str, Any]:
    """What is said of the rows' tokens.

    Raises:
        DataError: there are none.
    """
    if not tokens:
        raise DataError("no row has tokens to count: every row failed, or there is none")
    tokens = sorted(tokens)
    counts = [bisect_right(tokens, end) for end in BUCKETS]
    within = [after - before for before, after in zip([0, *counts], [*counts, len(tokens)], strict=True)]
    return {
        "rows": len(tokens),
        "mean": round(sum(tokens) / len(tokens), 1),
        "max": tokens[-1],
        # The value at index int(n * share / 100) - 1, within the list.
        "percentiles": {f"{share:g}": tokens[max(int(len(tokens) * share / 100) - 1, 0)] for share in PERCENTILES},
        "buckets": dict(zip([*map(str, BUCKETS), "more"], within, strict=True)),
        "longer_than": {str(limit): len(tokens) - bisect_right(tokens, limit) for limit in LIMITS},
        "recommended": {f"{coverage:g}": _recommended(tokens, coverage) for coverage in COVERAGES},
    }


def _recommended(tokens: Sequence[int], coverage: float) -> int | None:
    """The smallest usual sequence length that holds such a share of the rows; None: not even the largest."""
    least = tokens[math.ceil(len(tokens) * coverage / 100) - 1]
    return next((length for length in LENGTHS if length >= least), None)


def messages_of(row: Row) -> list[dict[str, Any]]:
    """Prompt and completion as one conversation.

    Raises:
        ValueError: the row has none.
    """
    messages: list[dict[str, Any]] = []
    for column, role in (("prompt", "user"), ("completion", "assistant")):
        value = row.get(column)
        if isinstance(value, str):
            messages.append({"role": role, "content": value})
            continue
        if not isinstance(value, list) or not value:
            raise ValueError(f"the row has no {column}")
        for message in value:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise ValueError(f"a message of the {column} has no role")  # noqa: TRY004 of the row, not of an argument
            kept = {name: text for name, text in message.items() if text is not None}
            reasoning = kept.pop("reasoning", None)
            if reasoning is not None:
                kept.setdefault("reasoning_content", reasoning)
            messages.append({"content": "", **kept})
    return messages


def load_tokenizer(name: str, token: str | None) -> PreTrainedTokenizerBase:
    """A tokenizer of the hub, or in a folder.

    Raises:
        DataError: there is none, or it has no chat template.
    """
    from transformers import AutoTokenizer
    from transformers.utils import logging

    # It would say that torch is missing, which nothing here needs.
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # theirs
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name, token=token)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot load the tokenizer {name}: {error}") from error
    if not tokenizer.chat_template:
        raise DataError(f"the tokenizer {name} has no chat template, which says how a conversation is written")
    return tokenizer


def count(tokenizer: PreTrainedTokenizerBase, rows: Iterator[Row], report: StepReport) -> Iterator[int]:
    """The tokens of each row. Rows that cannot be counted are in the report, with the reason."""
    for batch in batches(rows, _BATCH):
        texts: list[str] = []
        for row in batch:
            report.rows_in += 1
            try:
                text = tokenizer.apply_chat_template(messages_of(row), tokenize=False, add_generation_prompt=False)
            except Exception as error:  # noqa: BLE001 a template is a program of others
                report.failed[f"{type(error).__name__}: {error}"[:200]] += 1
                continue
            texts.append(str(text))
        if texts:
            for tokens in tokenizer(texts, add_special_tokens=False)["input_ids"]:
                report.rows_out += 1
                yield len(tokens)


def run(
    source: Source,
    *,
    model: str = MODEL_NAME,
    token: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> StepReport:
    """Count all splits of a data set with a tokenizer at the hub or in a folder.

    `progress` gets how many rows are counted.
    """
    tokenizer = load_tokenizer(model, token)
    report = StepReport(step="lengths")
    tokens: list[int] = []
    for length in count(tokenizer, source.rows(), report):
        tokens.append(length)
        progress(len(tokens))
    report.facts = {"source": source.name, "tokenizer": model, "splits": source.splits, **figures(tokens)}
    return report
