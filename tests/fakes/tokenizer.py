"""Tokenizers that are trained in a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

#: Like the templates of models that think: a message's reasoning is what they call `reasoning_content`.
TEMPLATE = (
    "{% for m in messages %} {{ m.role }} {{ m.reasoning_content or '' }} {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %} assistant {% endif %}"
)


def words(folder: Path, texts: Iterable[str] = ("a b c user assistant",)) -> Path:
    """A tokenizer of whole words, saved in a folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.WordLevel(unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["?"], show_progress=False))
    return _saved(made, folder)


def _saved(tokenizer: object, folder: Path) -> Path:
    from transformers import PreTrainedTokenizerFast

    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?")  # type: ignore[no-untyped-call]  # theirs
    whole.chat_template = TEMPLATE
    whole.save_pretrained(folder / "tokenizer")
    return folder / "tokenizer"
