"""Items that are sent and results that come back, as records. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from runner.base.errors import InfrastructureError, SubmissionError
from runner.extras.trainers.client import rewards

#: No call of the database takes more items, and no call of ours more bytes.
MAX_ITEMS: Final = 1000
MAX_BYTES: Final = 32 << 20
#: The database refuses longer texts, so they are not sent at all.
MAX_TEXT_BYTES: Final = 1_000_000
#: How a key begins that is made from an item's content.
_MADE: Final = "sha256:"
_UNFIT: Final = re.compile("[\x00\ud800-\udfff]")


class EvaluationFaultError(InfrastructureError):
    """An item has no result that says something about its candidate: our fault, or it was cancelled."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One candidate for one reference. Without a key its content is its key: equal items are evaluated once."""

    reference: str
    candidate: str
    key: str = ""
    entry_point: str = "Model"
    #: None: the reference's name with `New`.
    candidate_entry_point: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", _content_key(self))

    @property
    def digest(self) -> str:
        """A hash of all but the key: what makes two items of one key the same."""
        return _content_key(self)

    def as_json(self) -> dict[str, Any]:
        """As `runner.submit_batch` takes it. What no database stores goes as a sentence that says so."""
        sent: dict[str, Any] = {"key": self.key, "entry_point": self.entry_point}
        if self.candidate_entry_point is not None:
            sent["candidate_entry_point"] = self.candidate_entry_point
        if self.settings:
            sent["settings"] = dict(self.settings)
        for what in ("reference", "candidate"):
            trouble = _trouble(what, getattr(self, what))
            if trouble is not None:
                # The hash keeps the key from being used for another text.
                digest = hashlib.sha256(str(getattr(self, what)).encode("utf-8", "surrogatepass")).hexdigest()
                return {**clean(sent), "invalid": trouble, "sha256": digest}
            sent[what] = getattr(self, what)
        return {**sent, **clean({key: value for key, value in sent.items() if key not in ("reference", "candidate")})}


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of an item."""

    key: str
    #: `done` or `cancelled`.
    state: str
    #: None: it was cancelled.
    verdict: str | None
    #: Everything that was found, by the keys of docs/trainers.md.
    facts: Mapping[str, Any]
    attempt: int | None = None
    host: str | None = None
    #: It is a copy of an earlier result of equal work.
    reused: bool = False
    created_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def is_fault(self) -> bool:
        """Whether it says nothing about the candidate, nor about the reference: our fault, or cancelled."""
        return self.verdict is None or self.verdict == "internal_error"

    @property
    def correct(self) -> bool:
        """Whether the candidate was accepted."""
        return self.verdict == "accepted"

    @property
    def speedup(self) -> float | None:
        """How much faster than the baseline; 0 if not correct, 1 if the interval contains 1; None: not timed."""
        return rewards.speedup(self.facts)

    @property
    def message(self) -> str:
        """A sentence that says why it is not accepted."""
        return str(self.facts.get("message") or "")

    def reward(self, name: str) -> float | None:
        """A reward by name; None where the candidate is not to blame, or a fact is not known.

        Raises:
            NotFoundError: there is no such reward.
        """
        return rewards.reward(name, self.facts)

    def reward_or_raise(self, name: str) -> float:
        """A reward by name.

        Raises:
            EvaluationFaultError: there is none, and 0 would be a lie.
            NotFoundError: there is no such reward.
        """
        value = self.reward(name)
        if value is None:
            raise EvaluationFaultError(
                f"item {self.key!r} has no reward {name}: {self.verdict or 'cancelled'}: {self.message}"
            )
        return value


def result_of(row: Mapping[str, Any]) -> Result:
    """A row of `runner.batch_results` that has a result."""
    return Result(
        key=row["key"],
        state=row["state"],
        verdict=row["verdict"],
        facts=row["result"],
        attempt=row["attempt"],
        host=row["host"],
        reused=row["reused_from"] is not None,
        created_at=row["created_at"],
        finished_at=row["finished_at"],
    )


def calls(items: Iterable[Item]) -> Iterator[Sequence[Item]]:
    """The items in portions that one call takes."""
    portion: list[Item] = []
    size = 0
    for item in items:
        own = 500 + sum(min(len(str(text)), MAX_TEXT_BYTES) for text in (item.reference, item.candidate))
        if portion and (len(portion) == MAX_ITEMS or size + own > MAX_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(item)
        size += own
    if portion:
        yield portion


def scope_of(gpu_type: str, settings: Mapping[str, Any]) -> str:
    """What a client adds to a key that is made from an item's content: the rest of what its result depends on."""
    text = json.dumps([gpu_type, dict(settings)], sort_keys=True, default=str)
    return "/" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def stored_key(key: str, scope: str) -> str:
    """The key in the database: a caller's own as it is, one made from content with the client's scope."""
    return key + scope if key.startswith(_MADE) else key


def require_sound(key: str) -> None:
    """Make sure that a key can be sent; the database looks at the rest.

    Raises:
        SubmissionError: it has a character that JSON columns refuse.
    """
    if _UNFIT.search(key):
        raise SubmissionError(f"key {key!r} has a character that no database stores; give the item another key")


def _content_key(item: Item) -> str:
    content = [item.reference, item.entry_point, item.candidate, item.candidate_entry_point, dict(item.settings)]
    text = json.dumps(content, sort_keys=True, default=str)
    return _MADE + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _trouble(what: str, text: object) -> str | None:
    if not isinstance(text, str):
        return f"the {what} is not a text"
    match = _UNFIT.search(text)
    if match is not None:
        kind = "NUL character" if match[0] == "\0" else "lone surrogate"
        return f"the {what} has a {kind} at position {match.start()}"
    size = len(text.encode())
    return f"the {what} has {size} bytes, expected at most {MAX_TEXT_BYTES}" if size > MAX_TEXT_BYTES else None


def clean(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value without what PostgreSQL's JSON has no form for; other numbers and objects as texts."""
    if isinstance(value, str):
        return _UNFIT.sub("�", value)
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return value if value is None or is_number else str(value)
