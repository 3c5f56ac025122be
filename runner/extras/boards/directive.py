"""The directive that names a file's leaderboard. Pure."""

from __future__ import annotations

import re
from typing import Final

from runner.task_format.model import Lang

#: The lines of a source in which directives count, as `runner.parse_directives` has it.
_HEAD: Final = re.compile(r"(?:(?:#|//)[^\r\n]*(?:\r\n|\r|\n|\Z)){1,64}")
_WORD: Final = re.compile(r"\S+", re.ASCII)


def with_directive(text: str, board: str, *, lang: str) -> str:
    """The template with a first line that names its leaderboard, unless it has one.

    A template for CUDA may well be Python with inline sources; the task's `lang` decides.
    """
    head = _HEAD.match(text)
    lines = () if head is None else (_WORD.findall(line) for line in re.split(r"\r\n|\r|\n", head[0]))
    if any(
        words[0] in ("#!POPCORN", "//!POPCORN") and words[1].lower() == "leaderboard" for words in lines if words[1:]
    ):
        return text
    return f"{'//' if lang == Lang.CU else '#'}!POPCORN leaderboard {board}\n{text}"
