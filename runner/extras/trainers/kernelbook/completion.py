"""What a chat-completions endpoint answered: a completion, or the service's failure. Nothing else decides that.

A status alone does not say: gateways answer 200 with an error, with a page to sign in, or with half a body. Only a body
with a message in its first choice is a completion. All else is the service's failure, with the service's own words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: The key, the balance or the team: no later request fares better.
_STOP: Final = (401, 402, 403)
#: The request itself: the same request is refused again until its row, its model or the service changes.
_REFUSED: Final = (400, 413, 422)
_QUOTED_CHARS: Final = 300
#: How much of a body may name a code.
_SEARCHED_CHARS: Final = 100_000
#: Counts of tokens beyond it are no counts, and SQLite does not hold much more.
_MOST_TOKENS: Final = 2**53
#: A code of HTTP in a body that is no completion: in a field of its own, or where a sentence begins with it, such as
#: "Error code: 402 - no credits".
_CODE: Final = re.compile(
    r'"(?:code|status|status_?code|http_status|http_code)"\s*:\s*"?[^"\d,}]{0,20}(?P<field>[45]\d\d)(?!\d)'
    r'|"(?:message|msg|detail|error_description|error)"\s*:\s*"\W*(?:(?:http|error|status|code)\W*)*'
    r"(?P<sentence>[45]\d\d)(?!\d)",
    re.IGNORECASE,
)
#: Where a sentence of the service stands, the outermost first.
_SENTENCE_KEYS: Final = ("error", "message", "msg", "detail", "error_description", "choices")


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a model said."""

    text: str
    #: Why there is no text of the model to use: a refusal, a call of a tool, a cut. None: there is text.
    why_empty: str | None = None
    #: What the model thought: no part of the protocol.
    reasoning: str | None = None
    finish_reason: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The service gave no completion."""

    #: One sentence, with the service's words shortened.
    why: str
    #: Of HTTP, or of the error in the body; None: neither has one.
    code: int | None = None

    @property
    def stops(self) -> bool:
        """Whether nothing more is to be asked."""
        return self.code in _STOP

    @property
    def is_refusal(self) -> bool:
        """Whether a second try of this request is useless now."""
        return self.code in _REFUSED


def decide(status: int, body: bytes) -> Completion | Failure:
    """What an answer of HTTP is, whatever its content type says."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        reply = None
    is_good = 200 <= status < 300
    what: Completion | str = ""
    if is_good and not _reports_error(reply):
        what = _completion(reply)
        if isinstance(what, Completion):
            return what
    matches = _CODE.finditer(body.decode("utf-8", "replace")[:_SEARCHED_CHARS])
    codes = [*([] if is_good else [status]), *(int(match["field"] or match["sentence"]) for match in matches)]
    code = next((code for code in codes if code in _STOP), codes[0] if codes else None)
    within = "" if code in (None, status) else f", error {code}"
    if what:
        sentence = f"expected a chat completion, found {what}, in {quoted(body)}"
    else:
        sentence = _sentence(reply) or f"expected a chat completion, found {quoted(body)}"
    return Failure(why=f"HTTP {status}{within}: {sentence}", code=code)


def quoted(foreign: str | bytes) -> str:
    """Foreign text for a sentence of ours: one line, printable, short, in quotation marks."""
    text = foreign if isinstance(foreign, str) else foreign.decode("utf-8", "replace")
    return f"'{_line(text)}'"


def _line(text: str) -> str:
    # A little more than is shown: a body may have megabytes.
    start = text[: 4 * _QUOTED_CHARS]
    line = " ".join("".join(char if char.isprintable() else " " for char in start).split())
    return line if len(line) <= _QUOTED_CHARS and len(start) == len(text) else f"{line[:_QUOTED_CHARS]}…"


def _first_choice(reply: Any) -> Any:  # noqa: ANN401 - JSON
    choices = reply.get("choices") if isinstance(reply, Mapping) else None
    return choices[0] if isinstance(choices, list) and choices else None


def _reports_error(reply: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a body says that something failed, whatever else it holds."""
    choice = _first_choice(reply)
    return (isinstance(reply, Mapping) and bool(reply.get("error"))) or (
        isinstance(choice, Mapping) and (bool(choice.get("error")) or choice.get("finish_reason") == "error")
    )


def _sentence(value: Any) -> str | None:  # noqa: ANN401 - JSON
    """The service's own sentence."""
    if isinstance(value, str):
        return _line(value)
    if isinstance(value, list) and value:
        return _sentence(value[0])
    if isinstance(value, Mapping):
        return next(filter(None, (_sentence(value.get(key)) for key in _SENTENCE_KEYS)), None)
    return None


def _completion(reply: Any) -> Completion | str:  # noqa: ANN401 - JSON
    """The completion, or what stands in the body in its place."""
    if not isinstance(reply, Mapping):
        return "no JSON object"
    choice = _first_choice(reply)
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        return "no message in the first choice" if reply.get("choices") else "no choices"
    parts = _parts(message.get("content"))
    if parts is None:
        return "content that is neither text nor a list of parts"
    text = "".join(parts["text"])
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "half a character in the content"
    own = next((message[key] for key in ("reasoning_content", "reasoning") if isinstance(message.get(key), str)), "")
    reasoning = _storable(own, *parts["reasoning"])
    refusal = message.get("refusal")
    refused = _storable(refusal if isinstance(refusal, str) else "", *parts["refusal"])
    finish = choice.get("finish_reason")
    why_empty = None if text.strip() else _why_empty(message, refused, finish, reasoning)
    if why_empty is None and not text.strip():
        return "no content"
    usage = reply.get("usage")
    return Completion(
        text=text if why_empty is None else refused,
        why_empty=why_empty,
        reasoning=reasoning or None,
        finish_reason=finish if isinstance(finish, str) else None,
        tokens_in=_tokens(usage, "prompt_tokens"),
        tokens_out=_tokens(usage, "completion_tokens"),
    )


def _why_empty(message: Mapping[str, Any], refused: str, finish: object, reasoning: str) -> str | None:
    """What a model did that gave no text; None: nothing, so the service lost it."""
    if refused:
        return f"the model refuses: {quoted(refused)}"
    if message.get("tool_calls") or message.get("function_call"):
        return "the answer is a call of a tool without content"
    if finish in ("length", "content_filter"):
        return f"the answer has no content (finish_reason {finish})"
    return "the answer has reasoning, and no content" if reasoning else None


def _parts(content: object) -> Mapping[str, list[str]] | None:
    """The texts of content by their kinds `text`, `refusal` and `reasoning`; None: it is no content."""
    texts: dict[str, list[str]] = {"text": [], "refusal": [], "reasoning": []}
    if content is not None and not isinstance(content, str | list):
        return None
    for part in [content] if isinstance(content, str) else content or ():
        if isinstance(part, str):
            texts["text"].append(part)
            continue
        if not isinstance(part, Mapping):
            return None
        kind = part.get("type", "text")
        text = next((part[key] for key in ("text", "refusal", "thinking") if isinstance(part.get(key), str)), None)
        if kind in ("text", "output_text"):
            if text is None:
                return None
            texts["text"].append(text)
        elif text is not None and kind in ("refusal", "reasoning", "thinking"):
            texts["refusal" if kind == "refusal" else "reasoning"].append(text)
    return texts


def _storable(*texts: str) -> str:
    """Texts as one, without halves of characters, which no file takes."""
    return "".join(texts).encode("utf-8", "replace").decode("utf-8")


def _tokens(usage: object, key: str) -> int:
    """A count of the usage; 0 where the service does not say one."""
    count = usage.get(key) if isinstance(usage, Mapping) else None
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count < _MOST_TOKENS:
        return 0
    return int(count)
